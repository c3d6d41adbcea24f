// Turns errors of the CUDA runtime into Errors, and its resources into owners.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "schema/error.h"

namespace k3 {

// Throws Error unless `error` is cudaSuccess. `what` is what was attempted, "to upload weights".
inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error("the GPU failed ", what, ": ", cudaGetErrorString(error), " (",
              cudaGetErrorName(error), ')');
}

// Page-locked memory of the host, which a GPU copies from and to by itself.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  explicit PinnedBytes(int64_t bytes) : size_bytes_(bytes) {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, static_cast<size_t>(bytes > 0 ? bytes : 1)),
               "to lock memory of the host");
    data_ = static_cast<std::byte*>(memory);
  }
  PinnedBytes(PinnedBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}
  PinnedBytes& operator=(PinnedBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
  ~PinnedBytes() {
    if (data_ != nullptr) (void)cudaFreeHost(data_);
  }

  std::byte* data() { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace k3
