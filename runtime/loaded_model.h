// A pack made ready to run: opened, checked, in memory, with a backend and its tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/backend.h"
#include "runtime/expert_cache.h"
#include "runtime/forward.h"
#include "runtime/tokenizer.h"
#include "runtime/weights.h"
#include "schema/pack_reader.h"
#include "schema/prune_plan.h"

namespace k3 {

struct LoadOptions {
  std::string pack_path;
  std::string backend = "cpu";  // BackendOptions::name, and so on
  std::optional<double> gpu_experts_gb = {};
  std::string numerics = "exact";
  int64_t chunk_tokens = 64;                   // most tokens that pass the layers together
  std::optional<double> expert_cache_gb = {};  // empty: what memory allows
  EvictionPolicy expert_cache_policy = EvictionPolicy::kLfuDecayed;
  ReadPath expert_reads = ReadPath::kDirect;     // of experts that do not stay in memory
  std::optional<int64_t> prefetch_experts = {};  // of each next layer; empty: as many as it chooses
  std::optional<int64_t> layers = {};  // run the first so many only: another model; empty: all
  std::string prune_plan_path = {};    // a plan that says which experts are missing; empty: none
  MissingRule missing = MissingRule::kNextBest;
  bool verify = true;  // check hashes: of the trunk now, of an expert when it is read
};

// Throws Error when a side file is missing or malformed.
Tokenizer load_tokenizer(const PackReader& pack);

// How many experts of each next layer are guessed under these options.
int64_t prefetched_experts(const LoadOptions& options, const ModelConfig& config);

class LoadedModel {
 public:
  // Frame, index and trunk are checked at once; so is every other byte when the whole pack is held
  // in memory. Otherwise each expert is checked when it is fetched. Of layers that do not run
  // nothing is read. Throws Error.
  // Says on stderr which GPU it is, and what `auto` chose.
  explicit LoadedModel(const LoadOptions& options);
  // The same on this backend.
  LoadedModel(const LoadOptions& options, std::unique_ptr<Backend> backend);

  const PackReader& pack() const { return pack_; }
  const ModelConfig& config() const { return config_; }  // the pack's, with the layers that run
  const std::optional<PrunePlan>& plan() const { return plan_; }
  const Weights& weights() const { return weights_; }
  Weights& weights() { return weights_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  Backend& backend() { return *backend_; }
  ExpertCache& experts() { return experts_; }
  Forward& forward() { return forward_; }

 private:
  PackReader pack_;
  ModelConfig config_;
  Tokenizer tokenizer_;
  std::optional<PrunePlan> plan_;
  std::unique_ptr<Backend> backend_;  // before all that may lie in its memory
  Weights weights_;
  ExpertCache experts_;
  Forward forward_;
};

}  // namespace k3
