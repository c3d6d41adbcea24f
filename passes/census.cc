#include "passes/census.h"

#include "passes/pass.h"

namespace k3 {
namespace {

CensusCount count_expert(const Expert& expert, const ModelConfig& config) {
  constexpr int64_t kMatrices = 3;  // w1, w2, w3
  CensusCount count;
  for (const Source& source : expert.sources) {
    if (source.length_bytes == 0) continue;
    ++count.tensors;
    count.bytes += source.length_bytes;
  }
  count.parameters = kMatrices * config.expert_width() * config.expert_intermediate_size;
  return count;
}

}  // namespace

Census take_census(const Model& model) {
  Census census;
  const auto family = [&census](Family which) -> CensusCount& {
    return census.families[static_cast<size_t>(which)];
  };
  for (const TrunkTensor& tensor : model.trunk) {
    family(tensor.family) += {1, tensor.shape.elements().value_or(0), tensor.source.length_bytes};
  }
  for (const Dropped& dropped : model.dropped) {
    family(dropped.family) += {dropped.tensors, dropped.parameters, dropped.bytes};
  }
  CensusCount chosen;
  for (const Bank& bank : model.banks) {
    for (const Expert& expert : bank.experts) {
      family(Family::kRoutedExperts) += count_expert(expert, model.config);
    }
    if (bank.experts.empty()) continue;
    // All experts of a bank have one size.
    const CensusCount expert = count_expert(bank.experts.front(), model.config);
    if (census.one_expert.tensors == 0) census.one_expert = expert;
    chosen.parameters += model.config.experts_per_token * expert.parameters;
    chosen.bytes += model.config.experts_per_token * expert.bytes;
  }

  for (size_t i = 0; i < census.families.size(); ++i) {
    const CensusCount& count = census.families[i];
    const auto which = static_cast<Family>(i);
    census.total += count;
    if (in_trunk(which)) census.trunk += count;
    if (which != Family::kRoutedExperts) census.non_expert += count;
    if (which == Family::kVision || which == Family::kProjector) census.vision += count;
  }
  const CensusCount& embedding = census.of(Family::kEmbedding);
  const CensusCount& head = census.of(Family::kHead);
  census.active_parameters = census.trunk.parameters + head.parameters + chosen.parameters;
  census.token_bytes.trunk = census.trunk.bytes;
  census.token_bytes.routed_experts = chosen.bytes;
  census.token_bytes.head = head.bytes;
  census.token_bytes.embedding =
      model.config.vocab_size == 0 ? 0 : embedding.bytes / model.config.vocab_size;
  return census;
}

// The pass: what the checkpoint holds goes into the pack's provenance before anything is chosen, so
// that the pack can say what of it was left out.
void count_checkpoint(Model& model, PassContext& context) {
  const Census census = take_census(model);
  const auto record = [&](const std::string& what, const CensusCount& count) {
    context.record(what + " tensors", static_cast<double>(count.tensors));
    context.record(what + " parameters", static_cast<double>(count.parameters));
    context.record(what + " bytes", static_cast<double>(count.bytes));
  };
  CensusCount dropped;
  for (const Dropped& part : model.dropped) {
    dropped += {part.tensors, part.parameters, part.bytes};
  }
  record("checkpoint", census.total);
  record("trunk", census.trunk);
  record("routed experts", census.of(Family::kRoutedExperts));
  record("dropped", dropped);
  context.record("active parameters", static_cast<double>(census.active_parameters));
}

}  // namespace k3
