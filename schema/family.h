// The families by which reports count tensors and bytes: what a tensor does, not where it lies.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace k3 {

// The values are on disk (pack.fbs). Append only.
enum class Family : uint8_t {
  kEmbedding = 0,
  kHead = 1,
  kNorm = 2,
  kAttentionResidual = 3,
  kKda = 4,
  kMla = 5,
  kDenseFfn = 6,
  kRouter = 7,
  kLatent = 8,
  kSharedExperts = 9,
  kRoutedExperts = 10,
  kVision = 11,
  kProjector = 12,
};

inline constexpr std::array<std::string_view, 13> kFamilyNames = {"embedding",
                                                                  "head",
                                                                  "norm",
                                                                  "attention residual",
                                                                  "kda",
                                                                  "mla",
                                                                  "dense ffn",
                                                                  "router",
                                                                  "latent",
                                                                  "shared experts",
                                                                  "routed experts",
                                                                  "vision",
                                                                  "projector"};

inline std::string_view family_name(Family family) {
  return kFamilyNames[static_cast<size_t>(family)];
}

// The trunk runs for every token: everything but embeddings, head, routed experts and the vision
// part.
inline bool in_trunk(Family family) {
  switch (family) {
    case Family::kEmbedding:
    case Family::kHead:
    case Family::kRoutedExperts:
    case Family::kVision:
    case Family::kProjector:
      return false;
    default:
      return true;
  }
}

}  // namespace k3
