// Memory of the emulated GPU with a test's values in it, and the stream that all its work runs on.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "schema/matrix_view.h"

namespace k3::test {

inline cudaStream_t the_stream() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), cudaSuccess);
    return made;
  }();
  return stream;
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) {
    EXPECT_EQ(cudaMalloc(&data_, size * sizeof(T)), cudaSuccess);
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(std::span<const T>(values)) {}
  ~DeviceArray() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }

  // Waits for the stream.
  std::vector<T> values() const {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaStreamSynchronize(the_stream()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

// A matrix on the device. `extent` is all that the view points into.
class DeviceMatrix {
 public:
  DeviceMatrix(const MatrixView& host, std::span<const std::byte> extent)
      : bytes_(extent), view_(host) {
    const auto moved = [&](auto pointer) {
      using Pointer = decltype(pointer);
      if (pointer == nullptr) return pointer;
      return reinterpret_cast<Pointer>(
          bytes_.data() + (reinterpret_cast<const std::byte*>(pointer) - extent.data()));
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
