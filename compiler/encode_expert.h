// Brings one routed expert from the checkpoint's six tensors into the bands of its extent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schema/layout.h"

namespace k3 {

// The bytes of one matrix as the checkpoint has them, row-major.
struct ExpertSource {
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;  // empty for bf16
};

// By ExpertMatrix: w1, w3, w2.
using ExpertSources = std::array<ExpertSource, 3>;

// Bytes of a matrix's codes and of its scales in the checkpoint.
struct ExpertSourceBytes {
  int64_t codes = 0;
  int64_t scales = 0;
};
ExpertSourceBytes expert_source_bytes(const ExpertBands& place, ExpertMatrix matrix);

// Moves the bytes of one band, and none of their bits, into `bytes` (place.band_bytes(band) of
// them).
void permute_band(const ExpertBands& place, int64_t band, const ExpertSources& sources,
                  std::span<std::byte> bytes);

// The least scale byte of each matrix, by ExpertMatrix (zeros for bf16). Throws Error, starting
// with `subject`, for a scale byte 255, for a 0 outside an all-zero group, and for scales that span
// more than 31 exponents, which the exact sums cannot hold.
std::array<uint8_t, 3> least_exponents(const ExpertBands& place, const ExpertSources& sources,
                                       const std::string& subject);

}  // namespace k3
