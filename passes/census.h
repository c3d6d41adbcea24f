// Counts a Model's sources: how many parameters and bytes each part of the checkpoint has, and what
// one token uses of them.
//
// Parameters are logical weights: a byte of packed MXFP4 counts as two, its scales count as none.
// Kept and dropped tensors both count, so the totals are the checkpoint's.
#pragma once

#include <array>
#include <cstdint>

#include "passes/model.h"
#include "schema/family.h"

namespace k3 {

struct CensusCount {
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;

  CensusCount& operator+=(const CensusCount& other) {
    tensors += other.tensors;
    parameters += other.parameters;
    bytes += other.bytes;
    return *this;
  }
  // Stored bits per weight, scales and padding included; 0 where there are no weights.
  double bits_per_weight() const {
    constexpr double kBitsPerByte = 8;
    if (parameters == 0) return 0;
    return kBitsPerByte * static_cast<double>(bytes) / static_cast<double>(parameters);
  }
  friend bool operator==(const CensusCount&, const CensusCount&) = default;
};

// What a runtime that holds nothing in memory reads for one token.
struct TokenBytes {
  int64_t trunk = 0;
  int64_t routed_experts = 0;  // the chosen ones of all layers
  int64_t head = 0;
  int64_t embedding = 0;  // one row of the table
  int64_t total() const { return trunk + routed_experts + head + embedding; }
};

struct Census {
  std::array<CensusCount, kFamilyNames.size()> families;
  CensusCount total;
  CensusCount trunk;       // everything that runs for every token, without embedding and head
  CensusCount non_expert;  // all but the routed experts; vision included
  CensusCount vision;      // tower and projector
  CensusCount one_expert;  // of the first bank; its tensors, parameters and bytes
  // Parameters that one token uses: the text model without routed experts and without the embedding
  // (a lookup), but with the head, and the chosen experts of each layer. By this rule the technical
  // report's 104.2 B comes out.
  int64_t active_parameters = 0;
  TokenBytes token_bytes;

  const CensusCount& of(Family family) const { return families[static_cast<size_t>(family)]; }
};

Census take_census(const Model& model);

}  // namespace k3
