// Device memory with a test's values in it, and the stream that all its work runs on; the same for
// a GPU and for the emulated one. Copies run on that stream too: a plain cudaMemcpy from the host
// may return before its last bytes have arrived, and a non-blocking stream does not wait for them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "schema/matrix_view.h"

namespace k3::test {

// Throws std::runtime_error unless `error` is cudaSuccess.
inline void check_cuda(cudaError_t error) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

inline cudaStream_t the_stream() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, size == 0 ? 1 : size * sizeof(T)));
    data_ = static_cast<T*>(memory);
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) {
    if (values.empty()) return;
    check_cuda(cudaMemcpyAsync(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice,
                               the_stream()));
    check_cuda(cudaStreamSynchronize(the_stream()));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(std::span<const T>(values)) {}
  DeviceArray(const T* values, int64_t count)
      : DeviceArray(std::span<const T>(values, static_cast<size_t>(count))) {}
  ~DeviceArray() { (void)cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }

  // Waits for the stream.
  std::vector<T> values() const {
    std::vector<T> values(size_);
    copy_to(values.data());
    return values;
  }
  void copy_to(T* host) const {
    if (size_ != 0) {
      check_cuda(
          cudaMemcpyAsync(host, data_, size_ * sizeof(T), cudaMemcpyDeviceToHost, the_stream()));
    }
    check_cuda(cudaStreamSynchronize(the_stream()));
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

// The bytes that a trunk matrix's view points into, or those of rows of mxfp4 with their scales
// behind them.
inline std::span<const std::byte> extent_of(const MatrixView& w) {
  const int64_t bytes = lies_in_blocks160(w.format)
                            ? Blocks160{w.format, w.rows, w.cols}.extent_bytes()
                            : w.rows * (packed_row_bytes(w.format, w.cols) + w.scales_per_row);
  return {w.codes, static_cast<size_t>(bytes)};
}

// A copy of such a matrix on the device.
class DeviceMatrix {
 public:
  explicit DeviceMatrix(const MatrixView& host) : bytes_(extent_of(host)), view_(host) {
    const auto moved = [&](auto pointer) {
      using Pointer = decltype(pointer);
      if (pointer == nullptr) return pointer;
      return reinterpret_cast<Pointer>(bytes_.data() +
                                       (reinterpret_cast<const std::byte*>(pointer) - host.codes));
    };
    view_.codes = moved(host.codes);
    view_.second_codes = moved(host.second_codes);
    view_.scales = moved(host.scales);
    view_.row_scales = moved(host.row_scales);
  }
  const MatrixView& view() const { return view_; }

 private:
  DeviceArray<std::byte> bytes_;
  MatrixView view_;
};

}  // namespace k3::test
