// The exact matrix products on a GPU: a warp a row, built from the same scalar definitions as the
// host's.
//
// A warp's 32 lanes are the 32 lanes of the lane order (lane_sum.h), so float weights are added in
// the defined order by each lane walking its columns and five shuffles. Integer sums may be split
// at will; here a lane takes every 32nd column. Consecutive lanes read consecutive codes, so loads
// coalesce; wider loads and dp4a are a matter of speed, not of bits.
#include "kernels/matmul_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kWarpsPerBlock = 4;
constexpr unsigned kAllLanes = 0xffffffffu;

// The tree of the lane order; complete in lane 0.
template <class Number>
__device__ Number add_lanes(Number value) {
  for (int stride = kLanes / 2; stride > 0; stride /= 2) {
    value += __shfl_down_sync(kAllLanes, value, stride);
  }
  return value;
}

// Lane `lane`'s share of a row of blocks160, each block's share times its multiplier.
template <class CodeAt>
__device__ long long block_share(const MatrixView& weights, int64_t row, int lane,
                                 const int16_t* codes, const CodeAt& code_at) {
  const uint8_t* multipliers = weights.scales + row * weights.scales_per_row;
  long long sum = 0;
  for (int64_t begin = 0; begin < weights.cols; begin += kBlockInputs) {
    const int64_t end = begin + kBlockInputs < weights.cols ? begin + kBlockInputs : weights.cols;
    int32_t share = 0;
    for (int64_t c = begin + lane; c < end; c += kLanes) share += code_at(c) * codes[c];
    sum += static_cast<long long>(share) * multipliers[begin / kBlockInputs];
  }
  return sum;
}

__device__ long long mxfp4_share(const MatrixView& weights, int64_t row, int lane,
                                 const int16_t* codes) {
  const auto* row_codes =
      reinterpret_cast<const uint8_t*>(weights.codes + row * weights.row_stride_bytes);
  const uint8_t* scales = weights.scales + row * weights.scales_per_row;
  unsigned long long sum = 0;  // wraps as the host's does
  for (int64_t c = lane; c < weights.cols; c += kLanes) {
    const int product = decode_mxfp4_doubled(mxfp4_code_at(row_codes, c)) * codes[c];
    sum += static_cast<unsigned long long>(static_cast<long long>(product))
           << mxfp4_shift(scales[c / kMxfp4GroupInputs], weights.least_exponent);
  }
  return static_cast<long long>(sum);
}

template <class WeightAt>
__device__ double float_share(const MatrixView& weights, int lane, const float* x,
                              const WeightAt& weight_at) {
  double sum = 0;
  for (int64_t c = lane; c < weights.cols; c += kLanes) {
    sum += static_cast<double>(weight_at(c)) * static_cast<double>(x[c]);
  }
  return sum;
}

// exact_row_sum by the 32 lanes of a warp; complete in lane 0.
__device__ double row_sum(const MatrixView& weights, int64_t row, int lane,
                          const ActivationVector& x) {
  const std::byte* codes = weights.codes + row * weights.row_stride_bytes;
  switch (weights.format) {
    case Format::kF32:
      return add_lanes(float_share(weights, lane, x.values, [codes](int64_t c) {
        return reinterpret_cast<const float*>(codes)[c];
      }));
    case Format::kBf16:
      return add_lanes(float_share(weights, lane, x.values, [codes](int64_t c) {
        return decode_bf16(reinterpret_cast<const uint16_t*>(codes)[c]);
      }));
    case Format::kInt8:
      return static_cast<double>(
          add_lanes(block_share(weights, row, lane, x.codes, [codes](int64_t c) {
            return static_cast<int32_t>(reinterpret_cast<const int8_t*>(codes)[c]);
          })));
    case Format::kTernary:
    case Format::kTernary2:
      return static_cast<double>(add_lanes(block_share(weights, row, lane, x.codes, [&](int64_t c) {
        return static_cast<int32_t>(ternary_code_at(weights, row, c));
      })));
    case Format::kMxfp4:
      return static_cast<double>(add_lanes(mxfp4_share(weights, row, lane, x.codes)));
  }
  return 0.0;
}

__global__ void multiply(MatrixView weights, ActivationVector x, float* y) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kLanes;
  if (row >= weights.rows) return;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const double sum = row_sum(weights, row, lane, x);
  if (lane == 0) y[row] = exact_output(weights, row, sum, x.step);
}

}  // namespace

cudaError_t matmul(const MatrixView& weights, const ActivationVector& x, float* y,
                   cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(divide_up(weights.rows, kWarpsPerBlock));
  if (blocks > 0) multiply<<<blocks, kWarpsPerBlock * kLanes, 0, stream>>>(weights, x, y);
  return cudaGetLastError();
}

}  // namespace k3::cuda
