// Rounds one row of a matrix to ternary or ternary2 by its weights alone.
//
// Nothing is known here of what the matrix reads, so nothing is made good: on Gaussian weights
// ternary keeps an error of 44 % and ternary2 one of 17 %, whatever the inputs. It is the honest
// baseline, and the point from which a solver that knows the inputs starts.
#pragma once

#include <cstdint>
#include <span>

namespace k3 {

// A row's scale, and what rounding did to it.
struct RoundedRow {
  float row_scale = 0;         // finite, not negative
  double squared_error = 0;    // sum of (w - stored w)^2
  double squared_weights = 0;  // sum of w^2
};

// The scale s that makes the sum of (w - s c)^2 least when every code c is the best integer in
// -largest_code..largest_code. Exact, by a scan of all codes that can be best; 0 when all weights
// are 0. At most 160 weights, finite; largest_code is 1 or 4.
double exact_scale(std::span<const float> weights, int largest_code);

// `codes` has ceil(cols / 160) x 160 entries (padding becomes 0), `multipliers` one per block.
// Non-finite weights are the caller's error.
RoundedRow round_ternary_row(std::span<const float> weights, int largest_code,
                             std::span<int8_t> codes, std::span<uint8_t> multipliers);

}  // namespace k3
