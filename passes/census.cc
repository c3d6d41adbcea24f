// census: what the checkpoint holds, counted before anything is chosen, so that the pack can say
// what of it was left out.
#include "passes/pass.h"

namespace k3 {

void run_census(Model& model, PassContext& context) {
  int64_t trunk_parameters = 0;
  int64_t trunk_bytes = 0;
  for (const TrunkTensor& tensor : model.trunk) {
    trunk_parameters += tensor.shape.elements().value_or(0);
    trunk_bytes += tensor.source.length_bytes;
  }
  const int64_t expert_parameters =
      3 * model.config.expert_width() * model.config.expert_intermediate_size;
  int64_t experts = 0;
  int64_t expert_bytes = 0;
  for (const Bank& bank : model.banks) {
    experts += static_cast<int64_t>(bank.experts.size());
    for (const Expert& expert : bank.experts) {
      for (const Source& source : expert.sources) expert_bytes += source.length_bytes;
    }
  }
  int64_t dropped_tensors = 0;
  int64_t dropped_parameters = 0;
  int64_t dropped_bytes = 0;
  for (const Dropped& dropped : model.dropped) {
    dropped_tensors += dropped.tensors;
    dropped_parameters += dropped.parameters;
    dropped_bytes += dropped.bytes;
  }

  const auto record = [&](const char* name, int64_t value) {
    context.record(name, static_cast<double>(value));
  };
  record("shards", static_cast<int64_t>(model.shards.size()));
  record("trunk tensors", static_cast<int64_t>(model.trunk.size()));
  record("trunk parameters", trunk_parameters);
  record("trunk bytes", trunk_bytes);
  record("experts", experts);
  record("expert parameters", experts * expert_parameters);
  record("expert bytes", expert_bytes);
  record("dropped tensors", dropped_tensors);
  record("dropped parameters", dropped_parameters);
  record("dropped bytes", dropped_bytes);
}

}  // namespace k3
