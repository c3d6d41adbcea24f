// The numbers are those of the release's vision_config (compiler/synth_config_text.cc).
#include "compiler/synth_vision.h"

#include <array>
#include <utility>

namespace k3 {
namespace {

struct VisionRow {
  std::string_view name;
  std::array<int64_t, Shape::kMaxRank> shape;  // 0 behind the last dimension
};

constexpr int64_t kBlocks = 27;
constexpr std::array kTowerRows = {
    VisionRow{"vision_tower.patch_embed.proj.weight", {1024, 3, 14, 14}},
    VisionRow{"vision_tower.patch_embed.pos_emb.weight", {64, 64, 1024}},
    VisionRow{"vision_tower.encoder.final_layernorm.weight", {1024}},
};
constexpr std::array kBlockRows = {
    VisionRow{"norm0.weight", {1024}},         VisionRow{"norm1.weight", {1024}},
    VisionRow{"wqkv.weight", {4608, 1024}},    VisionRow{"wo.weight", {1024, 1536}},
    VisionRow{"mlp.fc0.weight", {4096, 1024}}, VisionRow{"mlp.fc1.weight", {1024, 4096}},
};
constexpr std::array kProjectorRows = {
    VisionRow{"mm_projector.proj.0.weight", {4096, 4096}},
    VisionRow{"mm_projector.proj.2.weight", {7168, 4096}},
    VisionRow{"mm_projector.post_norm.weight", {7168}},
};

SynthTensor make_tensor(const std::string& stem, const VisionRow& row) {
  size_t rank = 0;
  while (rank < row.shape.size() && row.shape[rank] != 0) ++rank;
  SynthTensor tensor;
  tensor.name = stem + std::string(row.name);
  tensor.kind = row.name;
  tensor.dtype = Dtype::kBf16;
  tensor.shape = Shape(std::span(row.shape).first(rank));
  tensor.used_entries = tensor.entries();
  return tensor;
}

}  // namespace

std::vector<SynthTensor> make_vision_tensors() {
  std::vector<SynthTensor> tensors;
  for (const VisionRow& row : kTowerRows) tensors.push_back(make_tensor("", row));
  for (int64_t block = 0; block < kBlocks; ++block) {
    const std::string stem = "vision_tower.encoder.blocks." + std::to_string(block) + '.';
    for (const VisionRow& row : kBlockRows) tensors.push_back(make_tensor(stem, row));
  }
  return tensors;
}

std::vector<SynthTensor> make_projector_tensors() {
  std::vector<SynthTensor> tensors;
  for (const VisionRow& row : kProjectorRows) tensors.push_back(make_tensor("", row));
  return tensors;
}

}  // namespace k3
