#include "runtime/dump.h"

#include "schema/error.h"
#include "schema/safetensors_writer.h"

namespace k3 {
namespace {

// The layers one after the other, each [T, width].
template <class T>
std::vector<T> joined(const std::vector<std::vector<T>>& layers) {
  std::vector<T> all;
  for (const std::vector<T>& layer : layers) all.insert(all.end(), layer.begin(), layer.end());
  return all;
}

template <class T>
void append(std::vector<T>& to, const T* values, int64_t count) {
  to.insert(to.end(), values, values + count);
}

}  // namespace

Dump::Dump(const ModelConfig& config)
    : config_(config),
      hidden_(config.layers.size()),
      route_ids_(config.layers.size()),
      route_weights_(config.layers.size()) {}

void Dump::on_layer(int64_t layer, int64_t tokens, const float* hidden) {
  append(hidden_[static_cast<size_t>(layer)], hidden, tokens * config_.hidden_size);
}

void Dump::on_routing(int64_t layer, int64_t tokens, const int32_t* source_ids,
                      const float* weights) {
  append(route_ids_[static_cast<size_t>(layer)], source_ids, tokens * config_.experts_per_token);
  append(route_weights_[static_cast<size_t>(layer)], weights, tokens * config_.experts_per_token);
}

void Dump::on_logits(int64_t tokens, const float* logits) {
  append(logits_, logits, tokens * config_.vocab_size);
}

void Dump::write(const std::string& path, std::span<const int32_t> ids) const {
  const auto positions = static_cast<int64_t>(ids.size());
  K3_CHECK(static_cast<int64_t>(logits_.size()) == positions * config_.vocab_size);
  const std::vector<float> hidden = joined(hidden_);
  const std::vector<int32_t> route_ids = joined(route_ids_);
  const std::vector<float> route_weights = joined(route_weights_);
  const auto layers = static_cast<int64_t>(config_.layers.size());
  const int64_t choices = positions * config_.experts_per_token;
  const int64_t moe_layers = choices == 0 ? 0 : static_cast<int64_t>(route_ids.size()) / choices;
  const Shape routes{moe_layers, positions, config_.experts_per_token};
  const TensorToWrite tensors[] = {
      {"ids", Dtype::kI32, {positions}, std::as_bytes(ids)},
      {"logits", Dtype::kF32, {positions, config_.vocab_size}, std::as_bytes(std::span(logits_))},
      {"hidden",
       Dtype::kF32,
       {layers, positions, config_.hidden_size},
       std::as_bytes(std::span(hidden))},
      {"route_ids", Dtype::kI32, routes, std::as_bytes(std::span(route_ids))},
      {"route_weights", Dtype::kF32, routes, std::as_bytes(std::span(route_weights))},
  };
  write_safetensors(path, tensors);
}

}  // namespace k3
