// What a run computed, written as a safetensors file with the names of the goldens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/generate.h"

namespace k3 {

// Records every position that passes: ids [T], logits [T, vocab], hidden [layers, T, d] (the stream
// after each layer), route_ids and route_weights [MoE layers, T, k] (source ids; -1 where none was
// chosen). All of it stays in memory.
class Dump final : public RunObserver {
 public:
  explicit Dump(const ModelConfig& config);

  void on_layer(int64_t layer, int64_t tokens, const float* hidden) override;
  void on_routing(int64_t layer, int64_t tokens, const int32_t* source_ids,
                  const float* weights) override;
  void on_logits(int64_t tokens, const float* logits) override;

  // `ids` are the tokens that were recorded. Throws Error when the file cannot be written.
  void write(const std::string& path, std::span<const int32_t> ids) const;

 private:
  const ModelConfig& config_;
  std::vector<std::vector<float>> hidden_;         // by layer
  std::vector<std::vector<int32_t>> route_ids_;    // by layer; empty for dense ones
  std::vector<std::vector<float>> route_weights_;  // by layer; empty for dense ones
  std::vector<float> logits_;
};

}  // namespace k3
