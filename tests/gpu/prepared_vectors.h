// Activations on the device in the form that products with a format read.
#pragma once

#include <cstdint>

#include "kernels/operations_cuda.h"
#include "tests/gpu/device_array.h"

namespace k3::test {

class PreparedOnDevice {
 public:
  // From x [vectors, cols] on the device, which must outlive it.
  PreparedOnDevice(Format format, const float* x, int64_t vectors, int64_t cols)
      : stride_(reads_codes(format) ? ActivationTiles{format, cols}.vector_bytes() : 0),
        tiles_(static_cast<size_t>(vectors * stride_)),
        steps_(static_cast<size_t>(vectors)),
        scaled_(static_cast<size_t>(reads_codes(format) ? 0 : vectors * cols)),
        values_(x) {
    check_cuda(reads_codes(format)
                   ? cuda::quantize(format, x, vectors, cols, tiles_.data(), stride_, steps_.data(),
                                    the_stream())
                   : cuda::scale_activations(x, vectors * cols, scaled_.data(), the_stream()));
  }

  cuda::PreparedVectors view() {
    return {.values = values_,
            .scaled = scaled_.data(),
            .tiles = tiles_.data(),
            .stride_bytes = stride_,
            .steps = steps_.data()};
  }

 private:
  int64_t stride_;
  DeviceArray<std::byte> tiles_;
  DeviceArray<ActivationStep> steps_;
  DeviceArray<double> scaled_;
  const float* values_;
};

}  // namespace k3::test
