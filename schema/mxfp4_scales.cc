#include "schema/mxfp4_scales.h"

#include <algorithm>
#include <cstring>

#include "schema/formats/mxfp4.h"

namespace k3 {
namespace {

constexpr int64_t kGroupBytes = kMxfp4GroupInputs / 2;

// Codes 0 and 8 are zero and negative zero.
bool is_all_zero(const uint8_t* group) {
  uint64_t halves[2];
  static_assert(sizeof(halves) == kGroupBytes);
  std::memcpy(halves, group, sizeof(halves));
  return ((halves[0] | halves[1]) & 0x7777777777777777u) == 0;
}

// Whether all of kBlock scales lie in the range and none needs a look by itself.
constexpr int64_t kBlock = 64;
bool all_inside(const uint8_t* scales, const ScaleRange& range) {
  uint8_t least = kMxfp4NanScale;
  uint8_t greatest = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    least = std::min(least, scales[i]);
    greatest = std::max(greatest, scales[i]);
  }
  return least >= range.least && least != 0 && greatest <= range.greatest &&
         greatest != kMxfp4NanScale;
}

}  // namespace

ScaleFault scan_scales(const uint8_t* codes, const uint8_t* scales, int64_t rows, int64_t groups,
                       ScaleRange& range) {
  const int64_t count = rows * groups;
  for (int64_t i = 0; i < count;) {
    // Almost every scale lies inside the range so far; only the others need their codes read.
    if (i + kBlock <= count && all_inside(scales + i, range)) {
      i += kBlock;
      continue;
    }
    for (const int64_t end = std::min(i + kBlock, count); i < end; ++i) {
      const uint8_t scale = scales[i];
      if (scale >= range.least && scale <= range.greatest && scale != 0 &&
          scale != kMxfp4NanScale) {
        continue;
      }
      const ScaleFault fault{true, i / groups, i % groups, scale};
      if (scale == kMxfp4NanScale) return fault;
      if (is_all_zero(codes + i * kGroupBytes)) continue;
      if (scale == 0) return fault;
      if (range.least == 0) {
        range = {scale, scale};
      } else if (scale < range.least) {
        range.least = scale;
      } else {
        range.greatest = scale;
      }
    }
  }
  return {};
}

}  // namespace k3
