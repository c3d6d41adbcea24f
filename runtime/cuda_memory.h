// Memory of a GPU, owned, and the way into it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "runtime/cuda_check.h"
#include "schema/error.h"

namespace k3 {

// Memory of the GPU for cudaFree, uninitialised and 256-byte aligned. Throws Error.
inline std::byte* allocate_device_memory(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes > 0 ? bytes : 1));
  if (error == cudaErrorMemoryAllocation) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    throw Error("the GPU's memory is full: ", bytes, " bytes are asked for, ", free_bytes, " of ",
                total_bytes, " are free");
  }
  check_cuda(error, "to give memory");
  return static_cast<std::byte*>(memory);
}

// Uninitialised, 256-byte aligned.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  explicit DeviceBytes(int64_t bytes) : data_(allocate_device_memory(bytes)), size_bytes_(bytes) {}
  DeviceBytes(DeviceBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  DeviceBytes& operator=(DeviceBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }

  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

  // Room for `bytes` bytes, aligned as above; what was there is lost. True when it moved.
  bool make_room(int64_t bytes) {
    if (bytes <= size_bytes_) return false;
    *this = DeviceBytes();  // first, so that the old room is free for the new
    *this = DeviceBytes(bytes);
    return true;
  }

 private:
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

// Copies from any memory of the host through two page-locked buffers: the host fills one while the
// GPU reads the other.
class PinnedPassage {
 public:
  explicit PinnedPassage(int64_t buffer_bytes) {
    for (Buffer& buffer : buffers_) {
      buffer.bytes = PinnedBytes(buffer_bytes);
      check_cuda(cudaEventCreateWithFlags(&buffer.read, cudaEventDisableTiming),
                 "to make an event");
    }
  }
  ~PinnedPassage() {
    for (Buffer& buffer : buffers_) {
      if (buffer.read != nullptr) (void)cudaEventDestroy(buffer.read);
    }
  }
  PinnedPassage(const PinnedPassage&) = delete;
  PinnedPassage& operator=(const PinnedPassage&) = delete;

  // By work on `stream`; `host` is free for other use when the call returns.
  void copy(const void* host, int64_t bytes, void* dst, cudaStream_t stream) {
    const auto* from = static_cast<const std::byte*>(host);
    auto* to = static_cast<std::byte*>(dst);
    while (bytes > 0) {
      Buffer& buffer = buffers_[next_];
      next_ = (next_ + 1) % buffers_.size();
      const auto part = static_cast<size_t>(std::min(bytes, buffer.bytes.size_bytes()));
      check_cuda(cudaEventSynchronize(buffer.read), "to copy from the host");
      std::memcpy(buffer.bytes.data(), from, part);
      check_cuda(cudaMemcpyAsync(to, buffer.bytes.data(), part, cudaMemcpyHostToDevice, stream),
                 "to copy from the host");
      check_cuda(cudaEventRecord(buffer.read, stream), "to copy from the host");
      from += part;
      to += part;
      bytes -= static_cast<int64_t>(part);
    }
  }

 private:
  struct Buffer {
    PinnedBytes bytes;
    cudaEvent_t read = nullptr;  // when the GPU has read it
  };
  std::array<Buffer, 2> buffers_;
  size_t next_ = 0;
};

}  // namespace k3
