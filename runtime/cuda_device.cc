#include "runtime/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>

#include "kernels/operations_cuda.h"
#include "runtime/cuda_check.h"
#include "runtime/memory_limit.h"

namespace k3 {

std::string CudaDevice::describe() const {
  char text[400];
  std::snprintf(text, sizeof text, "%s (sm_%d%d), %.1f GB%s", name.c_str(), major, minor,
                static_cast<double>(memory_bytes) * 1e-9,
                is_integrated ? " shared with the host" : "");
  return text;
}

CudaDevice open_cuda_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    throw Error("no GPU can be used: ",
                error == cudaSuccess ? "there is none" : cudaGetErrorString(error));
  }
  check_cuda(cudaSetDevice(0), "to be opened");
  cudaDeviceProp properties = {};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "to say what it is");
  CudaDevice device{.name = properties.name,
                    .major = properties.major,
                    .minor = properties.minor,
                    .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                    .is_integrated = properties.integrated != 0};
  const cudaError_t image = cuda::check_kernel_image();
  if (image == cudaErrorNoKernelImageForDevice || image == cudaErrorInvalidDeviceFunction) {
    throw Error("the GPU is ", device.describe(), ", expected one of ", K3_CUDA_ARCHITECTURES,
                ", for which this build has kernels");
  }
  check_cuda(image, "to load this program's kernels");
  return device;
}

int64_t free_device_bytes(const CudaDevice& device) {
  if (device.is_integrated) return std::min(device.memory_bytes, available_memory_bytes());
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "to say how much memory is free");
  return static_cast<int64_t>(free_bytes);
}

int64_t usable_device_bytes(int64_t free_bytes) {
  constexpr int64_t kLeastReserve = int64_t{1} << 30;
  return std::max<int64_t>(0, free_bytes - std::max(kLeastReserve, free_bytes / 10));
}

}  // namespace k3
