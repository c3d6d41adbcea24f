#include "runtime/loaded_model.h"

#include <iostream>

#include "runtime/backend_choice.h"
#include "runtime/memory_limit.h"
#include "schema/error.h"
#include "schema/router_hash.h"

namespace k3 {
namespace {

// A tenth of what is free stays free: a cache that pushes the trunk out of memory costs more than
// it saves.
constexpr double kShareOfFreeMemory = 0.9;

int64_t expert_budget_bytes(const LoadOptions& options) {
  const auto free_bytes =
      static_cast<int64_t>(static_cast<double>(available_memory_bytes()) * kShareOfFreeMemory);
  if (!options.expert_cache_gb) return free_bytes;
  const double wanted_bytes = *options.expert_cache_gb * 1e9;
  if (!(wanted_bytes > 0 && wanted_bytes <= static_cast<double>(free_bytes))) {
    throw Error("--expert-cache-gb is ", *options.expert_cache_gb,
                ", expected more than 0 and at most ", static_cast<double>(free_bytes) / 1e9,
                ", which is free here");
  }
  return static_cast<int64_t>(wanted_bytes);
}

const LoadOptions& checked(const LoadOptions& options) {
  if (options.chunk_tokens < 1 || options.chunk_tokens > 4096) {
    throw Error("--chunk-tokens is ", options.chunk_tokens, ", expected 1 to 4096");
  }
  if (options.prefetch_experts.value_or(0) < 0) {
    throw Error("--prefetch is ", *options.prefetch_experts, ", expected 0 or more");
  }
  return options;
}

ModelConfig config_to_run(const PackReader& pack, const LoadOptions& options) {
  ModelConfig config = pack.config();
  if (!options.layers) return config;
  const auto most = static_cast<int64_t>(config.layers.size());
  if (*options.layers < 1 || *options.layers > most) {
    throw Error("--layers is ", *options.layers, ", expected 1 to ", most, ", which ", pack.path(),
                " has");
  }
  config.layers.resize(static_cast<size_t>(*options.layers));
  return config;
}

// A plan drops experts of the checkpoint, so the pack must route to all of them: what a plan would
// leave of a pruned pack is nobody's choice, and no receipt would hold for it.
std::optional<PrunePlan> load_plan(const PackReader& pack, const LoadOptions& options) {
  if (options.prune_plan_path.empty()) return std::nullopt;
  PrunePlan plan = read_prune_plan(options.prune_plan_path);
  const PackContent& content = pack.index().content;
  std::vector<int64_t> layers;
  for (const PackBank& bank : content.banks) {
    layers.push_back(bank.layer);
    const auto experts = std::ssize(hot_experts(bank));
    if (experts < bank.source_experts) {
      throw Error(pack.path(), ": layer ", bank.layer, " routes to ", experts, " of ",
                  bank.source_experts, " experts, --prune-plan needs a pack that has them all");
    }
  }
  check_plan_fits(plan, options.prune_plan_path, content.config, router_hash(content), layers);
  return plan;
}

std::unique_ptr<Backend> chosen_backend(const LoadOptions& options, const PackReader& pack) {
  BackendChoice choice = choose_backend({.name = options.backend,
                                         .gpu_experts_gb = options.gpu_experts_gb,
                                         .numerics = options.numerics},
                                        pack);
  if (!choice.note.empty()) std::cerr << "k3exec: " << choice.note << '\n';
  return std::move(choice.backend);
}

// After the trunk is where it belongs.
ExpertCacheOptions cache_options(const LoadOptions& options, const PackReader& pack,
                                 const ModelConfig& config, Backend& backend) {
  const bool with_cold = options.missing == MissingRule::kFetch;
  return {.budget_bytes = backend.take_experts(pack, config, expert_budget_bytes(options),
                                               options.verify, with_cold),
          .policy = options.expert_cache_policy,
          .reads = options.expert_reads,
          .check_hashes = options.verify,
          .with_cold = with_cold};
}

}  // namespace

Tokenizer load_tokenizer(const PackReader& pack) {
  return Tokenizer(pack.path(), pack.side_file("tiktoken.model"),
                   pack.side_file("tokenizer_config.json"), pack.config().vocab_size);
}

int64_t prefetched_experts(const LoadOptions& options, const ModelConfig& config) {
  return options.prefetch_experts.value_or(config.experts_per_token);
}

LoadedModel::LoadedModel(const LoadOptions& options) : LoadedModel(options, nullptr) {}

LoadedModel::LoadedModel(const LoadOptions& options, std::unique_ptr<Backend> backend)
    : pack_(checked(options).pack_path),
      config_(config_to_run(pack_, options)),
      tokenizer_(load_tokenizer(pack_)),
      plan_(load_plan(pack_, options)),
      backend_(backend != nullptr ? std::move(backend) : chosen_backend(options, pack_)),
      weights_(pack_, config_, options.verify, Residence::kAll, plan_ ? &*plan_ : nullptr,
               options.missing, backend_.get()),
      experts_(pack_, std::ssize(config_.layers),
               cache_options(options, pack_, config_, *backend_)),
      forward_(weights_, experts_, *backend_, options.chunk_tokens,
               prefetched_experts(options, config_)) {
  if (!options.verify || !experts_.all_resident()) return;
  const auto faults = pack_.verify({}, PackReader::Scope::kAroundWeights);
  if (!faults.empty()) throw Error(faults.front());
}

}  // namespace k3
