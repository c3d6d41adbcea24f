#include "compiler/fixed_point.h"

#include <algorithm>
#include <cmath>

#include "schema/error.h"
#include "schema/formats/bf16.h"
#include "schema/formats/mxfp4.h"
#include "schema/little_endian.h"

namespace k3 {

double row_bound_mxfp4(std::span<const std::byte> scales, int64_t rows) {
  constexpr double kLargestGroupSum = 6.0 * static_cast<double>(kMxfp4GroupInputs);
  const size_t groups = scales.size() / static_cast<size_t>(rows);
  double bound = 0;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    double sum = 0;
    for (const std::byte scale : scales.subspan(row * groups, groups)) {
      sum += kLargestGroupSum * decode_e8m0(std::to_integer<uint8_t>(scale));
    }
    bound = std::max(bound, sum);
  }
  return bound;
}

double row_bound_bf16(std::span<const std::byte> weights, int64_t rows) {
  const size_t row_bytes = weights.size() / static_cast<size_t>(rows);
  double bound = 0;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    double sum = 0;
    for (size_t i = 0; i < row_bytes; i += 2) {
      const auto code = load_little_endian<uint16_t>(&weights[row * row_bytes + i]);
      sum += std::fabs(static_cast<double>(decode_bf16(code)));
    }
    if (!std::isfinite(sum)) return sum;
    bound = std::max(bound, sum);
  }
  return bound;
}

int32_t fixed_point_for(const ModelConfig& config, double row_bound) {
  const double factor = config.routed_scaling_factor;
  const double weights =
      config.renormalize ? factor : factor * static_cast<double>(config.experts_per_token);
  const double largest = config.largest_activation() * row_bound * std::max(1.0, weights);
  if (largest == 0) return 62;
  // largest = m x 2^exponent with m in [0.5, 1), so largest x 2^F < 2^62 means exponent + F <= 62.
  int exponent = 0;
  std::frexp(largest, &exponent);
  return 62 - exponent;
}

}  // namespace k3
