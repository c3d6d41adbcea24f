// nano with few of its experts: plans by hand, packs compiled with them, and what those compute.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/loaded_model.h"
#include "schema/prune_plan.h"
#include "schema/router_hash.h"
#include "tests/runtime/packs.h"
#include "tests/temp_folder.h"

namespace k3::test {

// A plan of which choose(layer) puts the ids 0 to 63 into layer.kept and layer.dropped.
template <class Choose>
std::string write_nano_plan(const TempFolder& folder, const std::string& name,
                            const Choose& choose) {
  const PackReader pack(pack_path("nano"));
  PrunePlan plan{.router_xxh3 = router_hash(pack.index().content),
                 .experts = 64,
                 .experts_per_token = 4,
                 .score = "by hand",
                 .traces = {},
                 .layers = {}};
  for (const PackBank& bank : pack.index().content.banks) {
    PlanLayer layer{.layer = bank.layer, .kept = {}, .dropped = {}, .scores = {}};
    choose(layer);
    layer.scores.resize(64);
    plan.layers.push_back(layer);
  }
  return folder.write(name, format_prune_plan(plan));
}

// The path of the pack.
inline std::string compile_nano(const TempFolder& folder, const std::string& name,
                                const PruneExpertsOptions& prune) {
  CompileRequest request;
  request.checkpoint = K3_SOURCE_DIR "/examples/nano/checkpoint";
  request.output = folder.path(name);
  request.options.prune_experts = prune;
  request.quiet = true;
  testing::internal::CaptureStdout();
  run_compile(request);
  testing::internal::GetCapturedStdout();
  return request.output;
}

// The logits of every token of the prompt.
inline std::vector<float> prompt_logits(const LoadOptions& options,
                                        ForwardObserver* observer = nullptr) {
  LoadedModel model(options);
  SequenceState state(model.config());
  std::vector<float> all(kPrompt.size() * static_cast<size_t>(model.config().vocab_size));
  model.forward().run(kPrompt, state, all.data(), observer);
  return all;
}

}  // namespace k3::test
