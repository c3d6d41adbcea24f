#include "schema/pack_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "schema/compact_scales.h"
#include "schema/error.h"
#include "schema/hadamard.h"
#include "schema/layout.h"
#include "schema/model_tensors.h"
#include "schema/pack_extents.h"

namespace k3 {
namespace {

constexpr int64_t kMostLayers = 10'000;
constexpr int64_t kMostExperts = int64_t{1} << 20;
constexpr int kLargestFixedPoint = 256;  // F_L: the scale plane's range is 2^-127 .. 2^127

class ConfigCheck {
 public:
  explicit ConfigCheck(const std::string& path) : path_(path) {}

  template <class Number>
  void in_range(const char* name, Number value, Number low, Number high) const {
    if (!(value >= low && value <= high)) {  // false for NaN
      throw Error(path_, ": config: ", name, " is ", value, ", expected ", low, " to ", high);
    }
  }
  template <class Number>
  void in_range(const char* name, std::optional<Number> value, Number low, Number high) const {
    if (value) in_range(name, *value, low, high);
  }

 private:
  const std::string& path_;
};

// Bytes that a tensor of this format, layout and shape has, or nothing when they do not go
// together.
std::optional<int64_t> tensor_extent_bytes(const PackTensor& tensor) {
  const auto elements = tensor.shape.elements();
  for (int64_t dim : tensor.shape.dims()) {
    if (dim < 1 || dim > kLargestDim) return std::nullopt;
  }
  if (!elements || *elements > (int64_t{1} << 59)) return std::nullopt;
  switch (tensor.format) {
    case Format::kF32:
    case Format::kBf16:
      if (tensor.layout != Layout::kRowMajor) return std::nullopt;
      return packed_row_bytes(tensor.format, *elements);
    case Format::kInt8:
    case Format::kTernary:
    case Format::kTernary2:
      if (tensor.layout != Layout::kBlocks160 || tensor.shape.rank() != 2) return std::nullopt;
      return Blocks160{tensor.format, tensor.shape[0], tensor.shape[1]}.extent_bytes();
    case Format::kMxfp4:
      return std::nullopt;
  }
  return std::nullopt;
}

void check_tensors(const PackContent& content, const std::string& path) {
  const std::vector<ExpectedTensor> expected = expected_tensors(content.config);
  std::unordered_map<std::string_view, const PackTensor*> by_name;
  by_name.reserve(content.tensors.size());
  for (const PackTensor& tensor : content.tensors) {
    if (!by_name.emplace(tensor.name, &tensor).second) {
      throw Error(path, ": tensor ", tensor.name, ": is listed twice");
    }
  }
  for (const ExpectedTensor& want : expected) {
    const auto found = by_name.find(want.name);
    if (found == by_name.end()) throw Error(path, ": tensor ", want.name, ": is missing");
    const PackTensor& got = *found->second;
    if (got.shape != want.shape) {
      throw Error(path, ": tensor ", want.name, ": shape is ", got.shape, ", expected ",
                  want.shape);
    }
    if (got.family != want.family) {
      throw Error(path, ": tensor ", want.name, ": family is ", family_name(got.family),
                  ", expected ", family_name(want.family));
    }
    if (lies_in_blocks160(got.format) && !want.may_quantize) {
      throw Error(path, ": tensor ", want.name, ": format is ", format_name(got.format),
                  ", expected bf16 or f32");
    }
    const auto bytes = tensor_extent_bytes(got);
    if (!bytes) {
      throw Error(path, ": tensor ", want.name, ": format ", format_name(got.format),
                  " does not go with layout ", layout_name(got.layout), " and shape ", got.shape);
    }
    if (got.extent.length_bytes != *bytes) {
      throw Error(path, ": tensor ", want.name, ": extent has ", got.extent.length_bytes,
                  " bytes, its shape and format make ", *bytes);
    }
    by_name.erase(found);
  }
  if (!by_name.empty()) {
    const auto first = std::min_element(by_name.begin(), by_name.end());
    throw Error(path, ": tensor ", first->first, ": this model has no tensor of that name");
  }
}

void check_bank(const ModelConfig& config, const PackBank& bank, const std::string& path) {
  const auto fail = [&](const auto&... parts) {
    throw Error(path, ": bank of layer ", bank.layer, ": ", parts...);
  };
  const auto experts = std::ssize(bank.experts);
  const auto hot = std::ssize(hot_experts(bank));
  if (bank.source_experts != config.experts) {
    fail("has ", bank.source_experts, " source experts, the config says ", config.experts);
  }
  if (hot < config.experts_per_token || experts > bank.source_experts) {
    fail("has ", hot < config.experts_per_token ? hot : experts, " experts, expected ",
         config.experts_per_token, " that are not cold, to ", bank.source_experts);
  }
  if (std::any_of(bank.experts.begin() + hot, bank.experts.end(),
                  [](const PackExpert& expert) { return !expert.cold; })) {
    fail("has experts behind a cold one that are not cold");
  }
  const bool in_bands = bank.layout == Layout::kExpertBands &&
                        (bank.format == Format::kMxfp4 || bank.format == Format::kBf16);
  const bool compact = bank.layout == Layout::kExpertBandsCompact && bank.format == Format::kMxfp4;
  if (!in_bands && !compact) {
    fail("has format ", format_name(bank.format), " and layout ", layout_name(bank.layout),
         ", expected mxfp4 or bf16 in expert_bands, or mxfp4 in expert_bands_compact");
  }
  const ExpertBands place = bank_bands(config, bank);
  if (bank.format == Format::kMxfp4 &&
      (place.latent % kMxfp4GroupInputs != 0 || place.inner % kMxfp4GroupInputs != 0)) {
    fail("widths ", place.latent, " and ", place.inner, " are not multiples of 32");
  }
  if (bank.fixed_point < -kLargestFixedPoint || bank.fixed_point > kLargestFixedPoint) {
    fail("fixed point is ", bank.fixed_point, ", expected -256 to 256");
  }

  const int64_t expert_bytes = place.extent_bytes();
  std::vector<bool> seen(static_cast<size_t>(bank.source_experts));
  for (const PackExpert& expert : bank.experts) {
    if (expert.source_id >= seen.size()) {
      fail("expert ", expert.source_id, " is beyond the ", bank.source_experts, " of the source");
    }
    if (seen[expert.source_id]) fail("expert ", expert.source_id, " is listed twice");
    seen[expert.source_id] = true;
    if (compact && *std::max_element(expert.least_exponent.begin(), expert.least_exponent.end()) >
                       kLargestCompactBase) {
      fail("expert ", expert.source_id, " has a least exponent beyond ",
           static_cast<int>(kLargestCompactBase), ", which half a byte more may carry past 254");
    }
    if (expert.extent.length_bytes != expert_bytes) {
      fail("expert ", expert.source_id, " has ", expert.extent.length_bytes,
           " bytes, its widths and format make ", expert_bytes);
    }
  }
}

void check_banks(const PackContent& content, const std::string& path) {
  size_t next = 0;
  for (size_t layer = 0; layer < content.config.layers.size(); ++layer) {
    if (content.config.layers[layer].ffn != FfnKind::kMoe) continue;
    if (next == content.banks.size() || content.banks[next].layer != static_cast<int64_t>(layer)) {
      throw Error(path, ": bank of layer ", layer, ": is missing or out of order");
    }
    check_bank(content.config, content.banks[next++], path);
  }
  if (next != content.banks.size()) {
    throw Error(path, ": bank of layer ", content.banks[next].layer,
                ": there is no such mixture layer, or it is listed twice");
  }
}

// A block is a power of two that divides the vector it cuts, or 1.
void check_rotation(const ModelConfig& config, const std::string& path) {
  const RotatedBasis& basis = *config.rotation;
  const auto check = [&](const char* name, int64_t block, int64_t width) {
    const bool is_power = block >= 1 && std::has_single_bit(static_cast<uint64_t>(block));
    if (!is_power || block > kLargestHadamard || (block > 1 && (width < 1 || width % block != 0))) {
      throw Error(path, ": config: rotation ", name, " is ", block,
                  ", expected a power of two up to ", kLargestHadamard, " that divides ", width);
    }
  };
  check("stream_block", basis.stream_block, config.hidden_size);
  check("query_block", basis.query_block, config.q_lora_rank.value_or(0));
  check("kda_block", basis.kda_block, config.kda_width());
  check("mla_block", basis.mla_block, config.mla_heads * config.v_head_dim);
  check("dense_block", basis.dense_block, config.dense_intermediate_size);
  check("shared_block", basis.shared_block, config.shared_intermediate_size());
  check("latent_block", basis.latent_block, config.latent_size.value_or(0));
  const bool has_experts =
      std::any_of(config.layers.begin(), config.layers.end(),
                  [](const LayerConfig& layer) { return layer.ffn == FfnKind::kMoe; });
  if (has_experts && !config.latent_size) {
    throw Error(path, ": config: has a rotation, but experts that read the stream itself");
  }
}

template <class Item>
void check_names(const std::vector<Item>& items, const char* what, const std::string& path) {
  std::unordered_set<std::string_view> names;
  for (const Item& item : items) {
    const bool plain = !item.name.empty() && item.name != "." && item.name != ".." &&
                       item.name.find('/') == std::string::npos;
    if (!plain) throw Error(path, ": ", what, " '", item.name, "': is not a plain file name");
    if (!names.insert(item.name).second) {
      throw Error(path, ": ", what, " ", item.name, ": is listed twice");
    }
  }
}

void check_extents(const PackFrame& frame, const PackIndex& index, const std::string& path) {
  const std::vector<PackExtent> extents = list_extents(frame, index);
  const auto fail = [&](const PackExtent& item, const auto&... parts) {
    throw Error(path, ": ", describe_extent(index, item), ": extent at ", item.extent.offset_bytes,
                " + ", item.extent.length_bytes, " ", parts...);
  };
  // Each by itself first: one that lies elsewhere would be reported as a hole where it is missing.
  for (const PackExtent& item : extents) {
    if (item.extent.length_bytes < 1) fail(item, "is empty");
    if (item.extent.end_bytes() > frame.file_bytes) {
      fail(item, "passes the end of the file at ", frame.file_bytes);
    }
    if (item.extent.offset_bytes % kExtentAlignment != 0) {
      fail(item, "does not start at a multiple of 4096");
    }
  }
  int64_t expected = kExtentAlignment;
  for (const PackExtent& item : extents) {
    if (item.extent.offset_bytes < expected) fail(item, "overlaps what lies before ", expected);
    if (item.extent.offset_bytes > expected) fail(item, "leaves a hole from ", expected, " on");
    expected = align_up(item.extent.end_bytes(), kExtentAlignment);
  }
}

}  // namespace

void check_config(const ModelConfig& config, const std::string& path) {
  const ConfigCheck check(path);
  check.in_range("layers", static_cast<int64_t>(config.layers.size()), int64_t{1}, kMostLayers);
  const auto has = [&](auto member, auto kind) {
    return std::any_of(config.layers.begin(), config.layers.end(),
                       [&](const LayerConfig& layer) { return layer.*member == kind; });
  };
  // What no layer of the model uses may be zero.
  const int64_t kda = has(&LayerConfig::attention, AttentionKind::kKda) ? 1 : 0;
  const int64_t mla = has(&LayerConfig::attention, AttentionKind::kMla) ? 1 : 0;
  const int64_t dense = has(&LayerConfig::ffn, FfnKind::kDense) ? 1 : 0;
  const int64_t moe = has(&LayerConfig::ffn, FfnKind::kMoe) ? 1 : 0;
  constexpr int64_t kOne = 1;
  constexpr double kLeastPositive = 1e-30;

  check.in_range("hidden_size", config.hidden_size, kOne, kLargestWidth);
  check.in_range("vocab_size", config.vocab_size, kOne, kLargestWidth);
  check.in_range("rms_norm_epsilon", config.rms_norm_epsilon, kLeastPositive, 1.0);
  check.in_range("low_rank_norm_epsilon", config.low_rank_norm_epsilon, kLeastPositive, 1.0);
  check.in_range("qk_norm_epsilon", config.qk_norm_epsilon, kLeastPositive, 1.0);

  check.in_range("kda_heads", config.kda_heads, kda, kLargestWidth);
  check.in_range("kda_head_dim", config.kda_head_dim, kda, kLargestWidth);
  check.in_range("conv_kernel", config.conv_kernel, kda, int64_t{64});
  check.in_range("decay_lower_bound", config.decay_lower_bound, -1000.0, -kLeastPositive);
  check.in_range("kda_gate_rank", config.kda_gate_rank, kOne, kLargestWidth);

  check.in_range("mla_heads", config.mla_heads, mla, kLargestWidth);
  check.in_range("q_lora_rank", config.q_lora_rank, kOne, kLargestWidth);
  check.in_range("kv_lora_rank", config.kv_lora_rank, mla, kLargestWidth);
  check.in_range("qk_content_dim", config.qk_content_dim, mla, kLargestWidth);
  check.in_range("qk_extra_dim", config.qk_extra_dim, int64_t{0}, kLargestWidth);
  check.in_range("v_head_dim", config.v_head_dim, mla, kLargestWidth);

  check.in_range("dense_intermediate_size", config.dense_intermediate_size, dense, kLargestWidth);
  if (config.activation == Activation::kSitu) {
    check.in_range("situ_beta", config.situ_beta, kLeastPositive, 1e6);
    check.in_range("situ_linear_beta", config.situ_linear_beta, kLeastPositive, 1e6);
  }

  check.in_range("experts", config.experts, moe, kMostExperts);
  check.in_range("experts_per_token", config.experts_per_token, moe, config.experts);
  check.in_range("expert_intermediate_size", config.expert_intermediate_size, moe, kLargestWidth);
  check.in_range("shared_experts", config.shared_experts, int64_t{0}, int64_t{1024});
  check.in_range("shared experts' width", config.shared_intermediate_size(), int64_t{0},
                 kLargestWidth);
  check.in_range("latent_size", config.latent_size, kOne, kLargestWidth);
  if (moe != 0) {
    check.in_range("routed_scaling_factor", config.routed_scaling_factor, kLeastPositive, 1e6);
  }

  check.in_range("attention_residual_block", config.attention_residual_block, kOne, kMostLayers);
  check.in_range("bos_token_id", config.bos_token_id, int64_t{0}, config.vocab_size - 1);
  check.in_range("eos_token_id", config.eos_token_id, int64_t{0}, config.vocab_size - 1);
  check.in_range("pad_token_id", config.pad_token_id, int64_t{0}, config.vocab_size - 1);
  if (config.rotation) check_rotation(config, path);
}

uint64_t demanded_features(const ModelConfig& config) {
  return config.rotation ? kFeatureRotation : 0;
}

void check_index(const PackFrame& frame, const PackIndex& index, const std::string& path) {
  check_config(index.content.config, path);
  const uint64_t features = demanded_features(index.content.config);
  if (frame.features != features) {
    throw Error(path, ": frame: features are ", frame.features, ", its index demands ", features);
  }
  check_tensors(index.content, path);
  check_banks(index.content, path);
  check_names(index.content.side_files, "side file", path);
  check_names(index.provenance.reports, "report", path);
  check_extents(frame, index, path);
}

}  // namespace k3
