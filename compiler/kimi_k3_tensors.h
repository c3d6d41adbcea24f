// Every tensor of a Kimi K3 checkpoint as data: name, where it occurs, what it does, type, shape.
// The import, its expectations and thereby the census follow from these rows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "schema/dtype.h"
#include "schema/family.h"
#include "schema/format.h"
#include "schema/model_config.h"
#include "schema/shape.h"

namespace k3 {

// What a dimension is in terms of the config.
enum class Width : uint8_t {
  kNone,  // no such dimension
  kOne,
  kHidden,
  kVocab,
  kKdaWidth,  // heads x head dim
  kKdaHeads,
  kKdaHeadsPadded,  // A_log: stored with this many entries or more, the rest zero
  kKdaHeadDim,
  kConvKernel,
  kQueryRank,
  kQuery,  // MLA heads x (content + extra)
  kKeyRank,
  kKeyRankExtra,  // key rank + extra
  kKeyValue,      // MLA heads x (content + value)
  kMlaValue,      // MLA heads x value
  kDenseInner,
  kExperts,
  kLatentWidth,
  kShared,
  kExpertInner,
  kLatentCodes,   // bytes of packed nibbles
  kLatentScales,  // E8M0 bytes
  kInnerCodes,
  kInnerScales,
};

// Which layers have a tensor, or that the model itself has it, and in which of their modules.
enum class Place : uint8_t {
  kInModel,
  kInLayer,
  kInKda,
  kInMla,
  kInGatedMla,  // only with mla_use_output_gate
  kInDense,
  kInMoe,
  kInLatentNorm,  // only with latent_moe_use_norm
};

enum class TensorKind : uint8_t {
  kMatrix,  // bf16; may be quantized
  kBf16,    // stays as it is
  kF32,     // stays as it is
};

struct TensorRow {
  std::string_view name;  // behind the layer's and the place's stems
  Place place;
  Family family;
  TensorKind kind;
  std::array<Width, 3> shape;

  Dtype dtype() const { return kind == TensorKind::kF32 ? Dtype::kF32 : Dtype::kBf16; }
};

// One of an expert's tensors, named behind "model.layers.N.block_sparse_moe.experts.E.".
struct ExpertRow {
  std::string_view name;
  Dtype dtype;
  std::array<Width, 3> shape;
};

// All tensors of the text model but the routed experts'.
std::span<const TensorRow> kimi_k3_trunk_rows();

// Whether a layer has the tensors of a place.
bool has_place(const ModelConfig& config, const LayerConfig& layer, Place place);

// What names of a place start with behind "model.layers.N.": "self_attn." and the like.
std::string_view stem_of(Place place);

// An expert's tensors in the order of Expert::sources: six for mxfp4, three for bf16.
std::span<const ExpertRow> kimi_k3_expert_rows(Format format);

Shape shape_of(const std::array<Width, 3>& widths, const ModelConfig& config);

}  // namespace k3
