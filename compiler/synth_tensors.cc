// The order inside a shard is not the order of names that the experts alone suggest: with F32
// first, then BF16, then U8, and names as text in each, the headers come out exactly as long as
// those of the released files, for every file whose size is known, and in no other order that was
// tried.
//
// K3's sharding is its layers: layer L is shard L + 1, then embeddings and head, the projector, the
// vision tower. Kimi-Linear's was cut by size, so we cut whenever the next tensor would bring a
// shard above 5 GB, which gives the release's number of shards; where exactly the release cuts is
// not known.
//
// The order of names as text keeps a layer's tensors together but puts layer 10 before layer 2,
// lm_head before the layers and the final norm behind them. So the index is walked in runs: whole
// layers, and single tensors of the model itself.
#include "compiler/synth_tensors.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "compiler/kimi_k3_tensors.h"
#include "compiler/kimi_linear_tensors.h"
#include "compiler/synth_vision.h"
#include "schema/error.h"

namespace k3 {
namespace {

constexpr int64_t kLargestShard = 5'000'000'000;  // tensor bytes, where shards are cut by size
constexpr int64_t kPartsBehindLayers = 1;         // embeddings, head and final norms
constexpr int64_t kVisionParts = 2;               // projector, tower

bool is_k3(const SynthPreset& preset) {
  return preset.family == SynthFamily::kKimiK3;
}

std::span<const TensorRow> trunk_rows(const SynthPreset& preset) {
  return is_k3(preset) ? kimi_k3_trunk_rows() : kimi_linear_trunk_rows();
}

std::string prefix_of(const SynthPreset& preset) {
  return is_k3(preset) ? "language_model." : "";
}

SynthTensor make_tensor(const std::string& stem, const TensorRow& row, const SynthPreset& preset) {
  SynthTensor tensor;
  tensor.name = stem + std::string(row.name);
  tensor.kind = row.name;
  tensor.dtype = row.dtype;
  tensor.shape = stored_shape(row.shape, preset.config);
  tensor.used_entries = tensor.entries();
  if (row.shape[0] == Width::kKdaHeadsPadded) tensor.shape = Shape({preset.a_log_entries});
  return tensor;
}

void add_experts(std::vector<SynthTensor>& tensors, const std::string& stem,
                 const SynthPreset& preset) {
  const auto rows = expert_rows(is_k3(preset) ? Format::kMxfp4 : Format::kBf16);
  for (int64_t e = 0; e < preset.config.experts; ++e) {
    const std::string expert = stem + "block_sparse_moe.experts." + std::to_string(e) + '.';
    for (const ExpertRow& row : rows) {
      SynthTensor tensor;
      tensor.name = expert + std::string(row.name);
      tensor.kind = row.name;
      tensor.dtype = row.dtype;
      tensor.shape = stored_shape(row.shape, preset.config);
      tensor.used_entries = tensor.entries();
      tensors.push_back(std::move(tensor));
    }
  }
}

std::string zero_padded(int64_t number, size_t digits) {
  std::string text = std::to_string(number);
  if (text.size() < digits) text.insert(0, digits - text.size(), '0');
  return text;
}

void sort_by_name(std::vector<SynthTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const SynthTensor& a, const SynthTensor& b) { return a.name < b.name; });
}

void sort_by_width_and_name(std::vector<SynthTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const SynthTensor& a, const SynthTensor& b) {
    const int64_t a_bytes = dtype_bytes(a.dtype);
    const int64_t b_bytes = dtype_bytes(b.dtype);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
  });
}

}  // namespace

SynthShards::SynthShards(const SynthPreset& preset) : preset_(preset) {
  const auto layers = static_cast<int64_t>(preset.config.layers.size());
  const int64_t count = layers + kPartsBehindLayers + (preset.has_vision ? kVisionParts : 0);
  for (int64_t part = 0; part < count; ++part) {
    const std::vector<SynthTensor> tensors = make_part(part);
    const auto size = static_cast<int64_t>(tensors.size());
    const int64_t step = part == layers ? 1 : size;  // the model's own tensors surround the layers
    for (int64_t i = 0; i < size; i += step) {
      runs_.push_back({tensors[static_cast<size_t>(i)].name, part, i, i + step});
    }
    for (const SynthTensor& tensor : tensors) total_bytes_ += tensor.bytes();
    part_begins_.push_back(part_begins_.back() + size);
  }
  std::sort(runs_.begin(), runs_.end(),
            [](const Run& a, const Run& b) { return a.first_name < b.first_name; });
  if (is_k3(preset)) {
    cut_by_part();
  } else {
    cut_by_size();
  }
}

void SynthShards::cut_by_part() {
  shard_begins_ = part_begins_;
}

void SynthShards::cut_by_size() {
  int64_t shard_bytes = 0;
  int64_t number = 0;
  for (int64_t part = 0; part < parts(); ++part) {
    for (const SynthTensor& tensor : make_part(part)) {
      if (shard_bytes > 0 && shard_bytes + tensor.bytes() > kLargestShard) {
        shard_begins_.push_back(number);
        shard_bytes = 0;
      }
      shard_bytes += tensor.bytes();
      ++number;
    }
  }
  shard_begins_.push_back(number);
}

std::string SynthShards::file_name(int64_t shard) const {
  return "model-" + zero_padded(shard + 1, 5) + "-of-" + zero_padded(count(), 6) + ".safetensors";
}

int64_t SynthShards::shard_of(int64_t tensor) const {
  return std::upper_bound(shard_begins_.begin(), shard_begins_.end(), tensor) -
         shard_begins_.begin() - 1;
}

std::vector<SynthTensor> SynthShards::tensors(int64_t shard) const {
  K3_CHECK(shard >= 0 && shard < count());
  const int64_t begin = shard_begins_[static_cast<size_t>(shard)];
  const int64_t end = shard_begins_[static_cast<size_t>(shard) + 1];
  std::vector<SynthTensor> tensors;
  for (int64_t part = 0; part < parts(); ++part) {
    const int64_t first = std::max(begin, part_begin(part)) - part_begin(part);
    const int64_t last = std::min(end, part_begin(part + 1)) - part_begin(part);
    if (first >= last) continue;
    std::vector<SynthTensor> made = make_part(part);
    std::move(made.begin() + first, made.begin() + last, std::back_inserter(tensors));
  }
  if (preset_.sorts_by_name) {
    sort_by_name(tensors);
  } else {
    sort_by_width_and_name(tensors);
  }
  return tensors;
}

std::vector<SynthTensor> SynthShards::make_part(int64_t part) const {
  const auto layers = static_cast<int64_t>(preset_.config.layers.size());
  std::vector<SynthTensor> tensors;
  if (part < layers) {
    const LayerConfig& layer = preset_.config.layers[static_cast<size_t>(part)];
    const std::string stem = prefix_of(preset_) + "model.layers." + std::to_string(part) + '.';
    for (const TensorRow& row : trunk_rows(preset_)) {
      if (!has_place(preset_.config, layer, row.place)) continue;
      tensors.push_back(make_tensor(stem, row, preset_));
    }
    if (layer.ffn == FfnKind::kMoe) add_experts(tensors, stem, preset_);
  } else if (part == layers) {
    for (const TensorRow& row : trunk_rows(preset_)) {
      if (row.place != Place::kModel) continue;
      tensors.push_back(make_tensor(prefix_of(preset_), row, preset_));
    }
  } else {
    tensors = part == layers + 1 ? make_projector_tensors() : make_vision_tensors();
  }
  sort_by_name(tensors);
  return tensors;
}

}  // namespace k3
