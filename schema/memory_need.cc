#include "schema/memory_need.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>

namespace k3 {

int64_t resident_bytes(const PackTensor& tensor) {
  const bool is_matrix = tensor.shape.rank() == 2 && tensor.shape[0] > 1;
  if (is_matrix || tensor.format != Format::kBf16) return tensor.extent.length_bytes;
  return 2 * tensor.extent.length_bytes;
}

int64_t expert_slot_bytes(const ModelConfig& config, const PackBank& bank) {
  return align_up(resident_bands(config, bank).extent_bytes(), kExtentAlignment);
}

MemoryNeed memory_need(const PackContent& content) {
  constexpr int64_t kFloat = 4;
  const ModelConfig& config = content.config;
  MemoryNeed need;
  // A router is held for the experts that may be chosen.
  std::unordered_map<std::string, int64_t> hot_of_router;
  for (const PackBank& bank : content.banks) {
    const std::string gate =
        "model.layers." + std::to_string(bank.layer) + ".block_sparse_moe.gate.";
    hot_of_router[gate + "weight"] = std::ssize(hot_experts(bank));
    hot_of_router[gate + "e_score_correction_bias"] = std::ssize(hot_experts(bank));
  }
  for (const PackTensor& tensor : content.tensors) {
    const auto hot = hot_of_router.find(tensor.name);
    need.weights_bytes += hot == hot_of_router.end()
                              ? resident_bytes(tensor)
                              : resident_bytes(tensor) / config.experts * hot->second;
  }
  for (const PackBank& bank : content.banks) {
    const int64_t expert_bytes = expert_slot_bytes(config, bank);
    need.all_expert_bytes += std::ssize(hot_experts(bank)) * expert_bytes;
    need.least_expert_bytes =
        std::max(need.least_expert_bytes, config.experts_per_token * expert_bytes);
  }
  for (const LayerConfig& layer : config.layers) {
    if (layer.attention == AttentionKind::kKda) {
      const int64_t windows = 3 * (config.conv_kernel - 1) * config.kda_width();
      need.state_bytes += kFloat * (windows + config.kda_width() * config.kda_head_dim);
    } else {
      need.position_bytes += kFloat * (config.kv_lora_rank + config.qk_extra_dim);
    }
  }
  return need;
}

}  // namespace k3
