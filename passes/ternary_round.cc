// The exact scale. For a given scale s the best code of w is |w| / s rounded to an integer, at most
// the largest, with w's sign. As s falls from infinity to zero the codes only grow: that of w steps
// from j - 1 to j where s passes |w| / (j - 1/2). So all vectors of codes that are best for some s
// lie on one path, along which each step adds |w| to A = sum |w| c and 2 j - 1 to B = sum c^2. For
// fixed codes the best scale is A / B and takes A^2 / B off the error, so the largest A^2 / B on
// the path is the optimum. With the weights sorted once, the steps of each j come in that same
// order, and the path is a merge of as many lists as there are codes.
//
// A stored scale is row_scale x multiplier, and a multiplier has 256 values. The row's largest
// scale gets 255; the other blocks take the better of the two multipliers around their scale,
// judged with the codes rounded anew, which is what the reader will multiply.
#include "passes/ternary_round.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "schema/error.h"
#include "schema/formats/int8.h"
#include "schema/formats/ternary.h"

namespace k3 {
namespace {

constexpr int kMostCodes = largest_ternary_code(Format::kTernary2);
constexpr double kLargestMultiplier = 255;

double magnitude_of(float weight) {
  return std::fabs(static_cast<double>(weight));
}

// The code of a magnitude under a scale above 0; half-way goes to the smaller code.
double best_code(double magnitude, double scale, int largest_code) {
  return std::clamp(std::ceil(magnitude / scale - 0.5), 0.0, static_cast<double>(largest_code));
}

double error_under(std::span<const float> weights, double scale, int largest_code) {
  double error = 0;
  for (const float weight : weights) {
    const double magnitude = magnitude_of(weight);
    const double code = scale > 0 ? best_code(magnitude, scale, largest_code) : 0.0;
    error += (magnitude - scale * code) * (magnitude - scale * code);
  }
  return error;
}

struct Choice {
  uint8_t multiplier = 0;
  double error = 0;
};

// The better multiplier of the two around scale / row_scale; the smaller one if they are equal.
Choice choose_multiplier(std::span<const float> weights, double scale, double row_scale,
                         int largest_code) {
  const double below =
      row_scale > 0 ? std::min(kLargestMultiplier, std::floor(scale / row_scale)) : 0.0;
  const double above = std::min(kLargestMultiplier, below + 1);
  const double error_below = error_under(weights, row_scale * below, largest_code);
  const double error_above = error_under(weights, row_scale * above, largest_code);
  if (error_above < error_below) return {static_cast<uint8_t>(above), error_above};
  return {static_cast<uint8_t>(below), error_below};
}

}  // namespace

double exact_scale(std::span<const float> weights, int largest_code) {
  K3_CHECK(weights.size() <= static_cast<size_t>(kBlockInputs) && largest_code <= kMostCodes);
  std::array<double, kBlockInputs> sorted;
  const auto end = std::transform(weights.begin(), weights.end(), sorted.begin(), magnitude_of);
  std::sort(sorted.begin(), end, std::greater<>());
  const auto count = static_cast<size_t>(std::find(sorted.begin(), end, 0.0) - sorted.begin());

  std::array<size_t, kMostCodes> next{};  // by j - 1: the weight whose code steps to j next
  double products = 0;                    // A
  double squares = 0;                     // B
  double best_gain = 0;
  double best_scale = 0;
  while (true) {
    size_t chosen = 0;
    double chosen_scale = 0;
    for (size_t i = 0; i < static_cast<size_t>(largest_code); ++i) {
      if (next[i] == count) continue;
      const double scale = sorted[next[i]] / (static_cast<double>(i) + 0.5);
      if (scale > chosen_scale) {
        chosen = i;
        chosen_scale = scale;
      }
    }
    if (chosen_scale == 0) return best_scale;
    products += sorted[next[chosen]++];
    squares += 2 * static_cast<double>(chosen) + 1;
    const double gain = products * products / squares;
    if (gain > best_gain) {
      best_gain = gain;
      best_scale = products / squares;
    }
  }
}

RoundedRow round_ternary_row(std::span<const float> weights, int largest_code,
                             std::span<int8_t> codes, std::span<uint8_t> multipliers) {
  constexpr auto kInputs = static_cast<size_t>(kBlockInputs);
  K3_CHECK(codes.size() == multipliers.size() * kInputs && weights.size() <= codes.size());
  const auto block_of = [&](size_t block) {
    const size_t begin = block * kInputs;
    return weights.subspan(begin, std::min(kInputs, weights.size() - begin));
  };
  std::vector<double> scales;
  for (size_t block = 0; block < multipliers.size(); ++block) {
    scales.push_back(exact_scale(block_of(block), largest_code));
  }
  const double largest = *std::max_element(scales.begin(), scales.end());

  RoundedRow row;
  row.row_scale = static_cast<float>(largest / kLargestMultiplier);
  if (static_cast<double>(row.row_scale) * kLargestMultiplier < largest) {
    row.row_scale = std::nextafter(row.row_scale, INFINITY);
  }
  std::fill(codes.begin(), codes.end(), int8_t{0});
  for (size_t block = 0; block < multipliers.size(); ++block) {
    const std::span<const float> part = block_of(block);
    const auto row_scale = static_cast<double>(row.row_scale);
    const Choice choice = choose_multiplier(part, scales[block], row_scale, largest_code);
    multipliers[block] = choice.multiplier;
    row.squared_error += choice.error;
    const double scale = row_scale * choice.multiplier;
    for (size_t i = 0; i < part.size(); ++i) {
      const double magnitude = magnitude_of(part[i]);
      row.squared_weights += magnitude * magnitude;
      if (scale == 0) continue;
      const double code = best_code(magnitude, scale, largest_code);
      codes[block * kInputs + i] = static_cast<int8_t>(std::copysign(code, part[i]));
    }
  }
  return row;
}

}  // namespace k3
