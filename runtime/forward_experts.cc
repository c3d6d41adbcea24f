// The forward pass where it meets the expert cache: experts are asked for as early as they are
// known, or guessed, and waited for as late as they are needed.
#include <algorithm>
#include <iterator>
#include <set>

#include "runtime/forward.h"

namespace k3 {

RoutedExpertsShape Forward::experts_shape(const MoeWeights& w) const {
  return {.place = {w.bank->format, config_.expert_width(), config_.expert_intermediate_size},
          .activation = config_.activation,
          .situ_beta = config_.situ_beta,
          .situ_linear_beta = config_.situ_linear_beta,
          .fixed_point = w.bank->fixed_point};
}

// Under MissingRule::kDrop: takes out the choices that add nothing.
void Forward::drop_choices(const MoeWeights& w, int64_t tokens) {
  if (w.drops.empty()) return;
  const int64_t choices = tokens * config_.experts_per_token;
  Buffers& b = buffers_;
  host_.slots.resize(static_cast<size_t>(choices));
  host_.weights.resize(static_cast<size_t>(choices));
  backend_.download(b.route_slots.data(), choices * int64_t{sizeof(int32_t)}, host_.slots.data());
  backend_.download(b.route_weights.data(), choices * int64_t{sizeof(float)}, host_.weights.data());
  for (size_t i = 0; i < static_cast<size_t>(choices); ++i) {
    int32_t& slot = host_.slots[i];
    if (slot < 0 || w.drops[static_cast<size_t>(slot)] == 0) continue;
    slot = -1;
    host_.weights[i] = 0;
  }
  backend_.upload(host_.slots.data(), choices * int64_t{sizeof(int32_t)}, b.route_slots.data());
  backend_.upload(host_.weights.data(), choices * int64_t{sizeof(float)}, b.route_weights.data());
}

// Guesses which experts `layer` will choose: its own router is applied to the stream as it is now,
// behind its own mix of the snapshots. What is still missing, an expert block and an attention, is
// little beside the stream. Only for tokens that come one by one; a chunk asks for most experts of
// a layer anyway.
void Forward::prefetch_experts(int64_t layer, int64_t tokens, const StreamPlaces& stream) {
  if (prefetch_experts_ == 0 || experts_.all_resident() || tokens > 1) return;
  if (layer == std::ssize(config_.layers)) return;
  if (config_.layers[static_cast<size_t>(layer)].ffn != FfnKind::kMoe) return;
  Buffers& b = buffers_;
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const RouterRule rule{
      .experts_per_token = prefetch_experts_, .renormalize = false, .routed_scaling_factor = 1};
  const float* x = mix_residual(stream, w.mlp_res_norm, w.mlp_res_proj, tokens);
  backend_.rms_norm(x, w.post_attention_norm, tokens, config_.hidden_size, config_.rms_norm_epsilon,
                    b.guess_normed.data());
  backend_.matmul(w.moe.gate, b.guess_normed.data(), tokens, b.guess_logits.data());
  backend_.route(rule, b.guess_logits.data(), w.moe.score_bias, w.moe.router_ids, tokens,
                 std::ssize(w.moe.source_ids), b.guess_slots.data(), b.guess_weights.data(),
                 nullptr);
  const int32_t* guesses = on_host(b.guess_slots.data(), prefetch_experts_, host_.guessed);
  std::vector<int32_t> wanted(guesses, guesses + prefetch_experts_);
  if (!w.moe.drops.empty()) {
    std::erase_if(wanted, [&](int32_t slot) {
      return slot >= 0 && w.moe.drops[static_cast<size_t>(slot)] != 0;
    });
  }
  experts_.prefetch(*w.moe.bank, wanted);
}

// Asks for the experts `slots` [tokens, k] of the tokens from `begin` on that fit into the cache
// together, and returns the token behind them. Where not all fit, half of the cache's room is left
// for those that follow.
int64_t Forward::request_experts(const MoeWeights& w, const int32_t* slots, int64_t begin,
                                 int64_t tokens) {
  const int64_t k = config_.experts_per_token;
  const auto slots_of = [&](int64_t first, int64_t last) {
    return std::span(slots + first * k, static_cast<size_t>((last - first) * k));
  };
  int64_t end = tokens;
  if (!experts_.all_resident()) {
    const int64_t half = std::max(experts_.room(*w.bank) / 2, int64_t{1});
    std::set<int32_t> distinct;
    for (end = begin; end < tokens; ++end) {
      const auto of_token = slots_of(end, end + 1);
      distinct.insert(of_token.begin(), of_token.end());
      if (end > begin && std::ssize(distinct) > half) break;
    }
  }
  experts_.request(*w.bank, slots_of(begin, end));
  return end;
}

// routed [tokens, l] = the weighted sum of the chosen experts of z [tokens, l]. The experts of the
// first `requested` tokens have been asked for. While a group of tokens is computed, the experts of
// the next one are read, where there is room for both. `norms` [tokens, k] may be null.
void Forward::run_experts(const MoeWeights& w, const int32_t* slots, int64_t tokens,
                          int64_t requested, const float* z, float* norms) {
  Buffers& b = buffers_;
  const int64_t k = config_.experts_per_token;
  const int64_t width = config_.expert_width();
  RoutedExpertsShape shape = experts_shape(w);
  const bool room_for_two = experts_.room(*w.bank) >= 2 * k;
  for (int64_t begin = 0; begin < tokens;) {
    const int64_t end = requested;
    const std::span<const ExpertWeights* const> experts = experts_.wait();
    if (room_for_two && end < tokens) requested = request_experts(w, slots, end, tokens);
    if (norms != nullptr) shape.norms = norms + begin * k;
    backend_.routed_experts(shape, experts, b.route_weights.data() + begin * k, k,
                            z + begin * width, end - begin, b.routed.data() + begin * width);
    experts_.release();
    if (!room_for_two && end < tokens) requested = request_experts(w, slots, end, tokens);
    begin = end;
  }
}

}  // namespace k3
