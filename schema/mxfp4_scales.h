// The one walk over the scale bytes of an mxfp4 matrix, for the encoder (which refuses what the
// exact arithmetic cannot hold) and for verify (which must come to the same numbers).
//
// Groups are shifted by their scale minus the matrix's least scale and added in int64, which holds
// a span of 31. Groups whose codes are all zero add nothing at any scale, so they do not count; a
// kernel must not shift by their scale.
#pragma once

#include <cstdint>

namespace k3 {

inline constexpr int kLargestScaleSpan = 31;

struct ScaleRange {
  uint8_t least = 0;     // of the groups that are not all zero; 0 when there is none
  uint8_t greatest = 0;  // likewise
  int span() const { return greatest - least; }
};

// A scale byte that no kernel may meet: 255 (NaN) anywhere, 0 (2^-127) outside an all-zero group.
struct ScaleFault {
  bool found = false;
  int64_t row = 0;
  int64_t group = 0;
  uint8_t scale = 0;
};

// Widens `range` by the scales of [rows, groups] with packed codes [rows, groups * 16]; stops at
// the first fault.
ScaleFault scan_scales(const uint8_t* codes, const uint8_t* scales, int64_t rows, int64_t groups,
                       ScaleRange& range);

}  // namespace k3
