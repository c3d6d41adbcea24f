// How a family's table of tensors is written: a row says name, where it occurs, what it does, type
// and shape. The import, its expectations and thereby the census follow from the rows, and so do
// the checkpoints that `k3c synth` makes.
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
  kStoredOne,  // a one that the checkpoint has around a vector and the Model leaves out
  kHidden,
  kVocab,
  kKda,  // heads x head dim
  kKdaHeads,
  kKdaHeadsPadded,  // A_log: stored with this many entries or more, the rest zero
  kKdaHeadDim,
  kKdaGateRank,
  kConvKernel,
  kQueryRank,
  kQuery,  // MLA heads x (content + extra)
  kKeyRank,
  kKeyRankExtra,  // key rank + extra
  kKeyValue,      // MLA heads x (content + value)
  kMlaValue,      // MLA heads x value
  kDenseInner,
  kExperts,
  kLatent,
  kShared,
  kExpertInner,
  kLatentCodes,   // bytes of packed nibbles
  kLatentScales,  // E8M0 bytes
  kInnerCodes,
  kInnerScales,
};

// The layers that have a tensor, or the model itself.
enum class Place : uint8_t {
  kModel,
  kLayer,
  kKdaLayer,
  kMlaLayer,
  kGatedMlaLayer,
  kDenseLayer,
  kMoeLayer,
  kLatentNormLayer,
};

using Widths = std::array<Width, Shape::kMaxRank>;  // outermost first; kNone behind the last

enum class Plan : bool { kExact, kMayQuantize };  // TrunkTensor::may_quantize

struct TensorRow {
  std::string_view name;  // behind "model.layers.N." or, for kModel, behind the prefix
  Place place;
  Family family;
  Dtype dtype;
  Plan plan;
  Widths shape;
};

// One of an expert's tensors, named behind "model.layers.N.block_sparse_moe.experts.E.".
struct ExpertRow {
  std::string_view name;
  Dtype dtype;
  Widths shape;
};

// Whether a layer has the tensors of a place.
bool has_place(const ModelConfig& config, const LayerConfig& layer, Place place);

// An expert's tensors in the order of Expert::sources: six for mxfp4, three for bf16.
std::span<const ExpertRow> expert_rows(Format format);

// As the release has it, and as the Model has it.
Shape stored_shape(const Widths& widths, const ModelConfig& config);
Shape model_shape(const Widths& widths, const ModelConfig& config);

}  // namespace k3
