// Which GPU a program runs on, and whether it can.
#pragma once

#include <cstdint>
#include <string>

namespace k3 {

struct CudaDevice {
  std::string name;
  int major = 0;  // of its compute capability
  int minor = 0;
  int64_t memory_bytes = 0;
  bool is_integrated = false;  // its memory is the host's

  // "NVIDIA H200 (sm_90), 150.1 GB"
  std::string describe() const;
};

// The first GPU, made the one that this program uses. Throws Error when there is none, when the
// driver does not work, and when the kernels of this build do not run on it.
CudaDevice open_cuda_device();

// Bytes of its memory that are free. Where the memory is the host's this is what the kernel calls
// available: CUDA there reports what is not even used as a file cache, which after reading a large
// pack is next to nothing.
int64_t free_device_bytes(const CudaDevice& device);

// What of so many free bytes weights and experts may take: the rest is for caches that grow and for
// what operations need in between.
int64_t usable_device_bytes(int64_t free_bytes);

}  // namespace k3
