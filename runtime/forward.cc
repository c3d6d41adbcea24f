// The Kimi K3 family, top to bottom: embed, layers, output mix, head. The mathematics is that of
// the released model: latent experts, KDA with a bounded decay, MLA without positions in its
// absorbed form, attention residuals. What a family lacks (Kimi-Linear has no residual mix, no
// latent, low-rank gates) its config lacks, and the step is skipped.
//
// Each step is one call on the backend with the shapes beside it; nothing here touches a number,
// and only what observers are shown is sure to be in the host's memory. All steps but the KDA
// recurrence and the attention over the cache treat tokens one by one, and those two go through the
// tokens in order, so how a prompt is cut into chunks cannot show in the result.

#include "runtime/forward.h"

#include <algorithm>
#include <cmath>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr int64_t kFloat = sizeof(float);

}  // namespace

Forward::Forward(const Weights& weights, ExpertCache& experts, Backend& backend, int64_t max_tokens,
                 int64_t prefetch_experts)
    : weights_(weights),
      config_(weights.config()),
      basis_(config_.rotation.value_or(RotatedBasis{})),
      experts_(experts),
      backend_(backend),
      max_tokens_(max_tokens),
      prefetch_experts_(std::min(prefetch_experts, config_.experts)) {
  K3_CHECK(max_tokens > 0);
  const ModelConfig& c = config_;
  const int64_t attention_width =
      std::max({c.kda_width(), c.mla_heads * c.qk_head_dim(), c.mla_heads * c.v_head_dim});
  const int64_t mlp_width = std::max(c.dense_intermediate_size, c.shared_intermediate_size());
  const int64_t rank_width = std::max({c.kda_head_dim, c.kda_gate_rank.value_or(0),
                                       c.q_lora_rank.value_or(0), c.kv_lora_rank + c.qk_extra_dim});
  Buffers& b = buffers_;
  const auto reserve = [&backend](Floats& buffer, int64_t rows, int64_t width) {
    buffer = make_vector<float>(backend, rows * width);
  };
  for (auto* buffer : {&b.prefix, &b.mixed, &b.normed, &b.branch, &b.shared}) {
    reserve(*buffer, max_tokens, c.hidden_size);
  }
  for (auto* buffer : {&b.q, &b.k, &b.v, &b.conv, &b.gate, &b.attended}) {
    reserve(*buffer, max_tokens, attention_width);
  }
  reserve(b.rank, max_tokens, rank_width);
  reserve(b.decay, max_tokens, c.kda_width());
  reserve(b.beta, max_tokens, c.kda_heads);
  for (auto* buffer : {&b.ffn_gate, &b.ffn_up}) reserve(*buffer, max_tokens, mlp_width);
  for (auto* buffer : {&b.latent, &b.routed}) reserve(*buffer, max_tokens, c.expert_width());
  reserve(b.router_logits, max_tokens, c.experts);
  reserve(b.route_weights, max_tokens, c.experts_per_token);
  b.route_slots = make_vector<int32_t>(backend, max_tokens * c.experts_per_token);
  reserve(b.guess_normed, 1, c.hidden_size);
  reserve(b.guess_logits, 1, c.experts);
  reserve(b.guess_weights, 1, prefetch_experts_);
  b.guess_slots = make_vector<int32_t>(backend, prefetch_experts_);
  if (c.attention_residual_block.has_value()) {
    b.snapshots.resize(
        static_cast<size_t>(divide_up(std::ssize(c.layers), *c.attention_residual_block)));
    for (Floats& snapshot : b.snapshots) reserve(snapshot, max_tokens, c.hidden_size);
  }
}

int64_t Forward::buffer_bytes() const {
  const Buffers& b = buffers_;
  int64_t floats = 2 * std::ssize(b.route_slots);
  for (const auto* buffer : {&b.prefix, &b.mixed,  &b.normed, &b.branch,        &b.q,
                             &b.k,      &b.v,      &b.conv,   &b.gate,          &b.attended,
                             &b.rank,   &b.decay,  &b.beta,   &b.ffn_gate,      &b.ffn_up,
                             &b.latent, &b.routed, &b.shared, &b.router_logits, &b.route_weights}) {
    floats += std::ssize(*buffer);
  }
  for (const Floats& snapshot : b.snapshots) floats += std::ssize(snapshot);
  return floats * kFloat;
}

ResidualStream Forward::make_stream() const {
  const auto values = static_cast<size_t>(max_tokens_ * config_.hidden_size);
  ResidualStream stream;
  stream.prefix.resize(values);
  stream.snapshots.assign(buffers_.snapshots.size(), std::vector<float>(values));
  return stream;
}

Forward::StreamPlaces Forward::own_stream() {
  StreamPlaces places{.prefix = buffers_.prefix.data(), .snapshots = {}};
  for (Floats& snapshot : buffers_.snapshots) places.snapshots.push_back(snapshot.data());
  return places;
}

// The caller's stream where the backend works: itself, or a copy.
Forward::StreamPlaces Forward::bring(ResidualStream& stream, int64_t tokens) {
  StreamPlaces places = own_stream();
  places.live_snapshots = stream.live_snapshots;
  if (backend_.works_on_host()) {
    places.prefix = stream.prefix.data();
    for (size_t i = 0; i < places.snapshots.size(); ++i) {
      places.snapshots[i] = stream.snapshots[i].data();
    }
    return places;
  }
  const int64_t bytes = tokens * config_.hidden_size * kFloat;
  backend_.upload(stream.prefix.data(), bytes, places.prefix);
  for (size_t i = 0; i < static_cast<size_t>(stream.live_snapshots); ++i) {
    backend_.upload(stream.snapshots[i].data(), bytes, places.snapshots[i]);
  }
  return places;
}

void Forward::give_back(const StreamPlaces& places, int64_t tokens, ResidualStream& stream) {
  stream.live_snapshots = places.live_snapshots;
  if (backend_.works_on_host()) return;
  const int64_t bytes = tokens * config_.hidden_size * kFloat;
  backend_.download(places.prefix, bytes, stream.prefix.data());
  for (size_t i = 0; i < static_cast<size_t>(places.live_snapshots); ++i) {
    backend_.download(places.snapshots[i], bytes, stream.snapshots[i].data());
  }
}

LayerPlaces Forward::places_of_layer(int64_t layer, int64_t positions, LayerState& state) {
  const bool has_cache =
      config_.layers[static_cast<size_t>(layer)].attention == AttentionKind::kMla;
  return places_of(state, backend_, positions, has_cache ? config_.cache_width() : 0);
}

float* Forward::logits_room(int64_t tokens) {
  const int64_t values = tokens * config_.vocab_size;
  if (std::ssize(buffers_.logits) < values) buffers_.logits = make_vector<float>(backend_, values);
  return buffers_.logits.data();
}

void Forward::run(std::span<const int32_t> ids, SequenceState& state, float* logits,
                  ForwardObserver* observer) {
  check_ids(ids);
  const auto tokens = std::ssize(ids);
  const int64_t positions = state.positions() + tokens;
  const int64_t logits_of = logits != nullptr ? tokens : 1;
  // Whatever needs memory gets it here: a pass that is to be repeated allocates nothing.
  const float* computed = logits_room(logits_of);
  int64_t position_room = positions;
  bool drops = false;
  const float* state_place = nullptr;
  for (int64_t layer = 0; layer < std::ssize(state.layers); ++layer) {
    LayerState& of_layer = state.layers[static_cast<size_t>(layer)];
    const LayerPlaces places = places_of_layer(layer, positions, of_layer);
    if (layer == 0) state_place = places.kda != nullptr ? places.kda : places.cache;
    if (of_layer.resident != nullptr) {
      position_room = std::max(position_room, of_layer.resident->position_room());
    }
    drops = drops || !weights_.layers[static_cast<size_t>(layer)].moe.drops.empty();
  }
  const bool is_repeatable = tokens == 1 && logits == nullptr && observer == nullptr && !drops;
  const Pass pass{.ids = ids,
                  .first_position = state.positions(),
                  .position_room = position_room,
                  .repeatable_state = is_repeatable ? state_place : nullptr,
                  .repeatable_logits = computed};
  check_found(backend_.run_pass(pass, [&] { run_steps(ids, state, logits_of, observer); }));

  state.last_logits.resize(static_cast<size_t>(config_.vocab_size));
  backend_.download(computed + (logits_of - 1) * config_.vocab_size, config_.vocab_size * kFloat,
                    state.last_logits.data());
  if (logits != nullptr) {
    backend_.download(computed, logits_of * config_.vocab_size * kFloat, logits);
  }
  state.ids.insert(state.ids.end(), ids.begin(), ids.end());
}

// All of run() that computes; leaves the logits of the last `logits_of` tokens in their buffer.
void Forward::run_steps(std::span<const int32_t> ids, SequenceState& state, int64_t logits_of,
                        ForwardObserver* observer) {
  const auto tokens = std::ssize(ids);
  StreamPlaces stream = own_stream();
  backend_.embed(weights_.embedding, ids, stream.prefix);
  for (int64_t layer = 0; layer < std::ssize(weights_.layers); ++layer) {
    const LayerPlaces places = places_of_layer(layer, state.positions() + tokens,
                                               state.layers[static_cast<size_t>(layer)]);
    run_layer(layer, tokens, stream, state.positions(), places, observer);
  }
  const float* x = finish(tokens, stream, observer);
  float* y = buffers_.logits.data();
  backend_.matmul(weights_.head, x + (tokens - logits_of) * config_.hidden_size, logits_of, y);
  check_finite(y, logits_of * config_.vocab_size, -1);
}

void Forward::check_ids(std::span<const int32_t> ids) const {
  K3_CHECK(!ids.empty() && std::ssize(ids) <= max_tokens_);
  for (int32_t id : ids) {
    if (id < 0 || id >= config_.vocab_size) {
      throw Error("token id is ", id, ", the model's vocabulary has ", config_.vocab_size);
    }
  }
}

void Forward::embed(std::span<const int32_t> ids, ResidualStream& stream) {
  check_ids(ids);
  stream.live_snapshots = 0;
  const StreamPlaces places = bring(stream, std::ssize(ids));
  backend_.run_pass({.ids = ids}, [&] { backend_.embed(weights_.embedding, ids, places.prefix); });
  give_back(places, std::ssize(ids), stream);
}

void Forward::run_layer(int64_t layer, int64_t tokens, ResidualStream& stream,
                        int64_t first_position, LayerState& state, ForwardObserver* observer) {
  const int64_t positions = first_position + tokens;
  StreamPlaces places = bring(stream, tokens);
  const LayerPlaces state_places = places_of_layer(layer, positions, state);
  const Pass pass{.ids = {}, .first_position = first_position, .position_room = positions};
  check_found(backend_.run_pass(
      pass, [&] { run_layer(layer, tokens, places, first_position, state_places, observer); }));
  give_back(places, tokens, stream);
  if (state.resident != nullptr) {
    state.resident.bring_home(positions, config_.cache_width(), state);
  }
}

const float* Forward::finish(int64_t tokens, ResidualStream& stream, ForwardObserver* observer) {
  return finish(tokens, bring(stream, tokens), observer);
}

const float* Forward::finish(int64_t tokens, const StreamPlaces& stream,
                             ForwardObserver* observer) {
  observer_ = observer;
  layer_ = static_cast<int64_t>(config_.layers.size());
  const float* x = mix_residual(stream, weights_.output_res_norm, weights_.output_res_proj, tokens);
  float* normed = buffers_.normed.data();
  backend_.rms_norm(x, weights_.final_norm, tokens, config_.hidden_size, config_.rms_norm_epsilon,
                    normed);
  show_input(MatrixInput::kHead, tokens, config_.hidden_size, normed, config_.hidden_size);
  return normed;
}

void Forward::multiply_head(const float* x, int64_t tokens, float* y) {
  float* computed = logits_room(tokens);
  backend_.matmul(weights_.head, x, tokens, computed);
  check_finite(computed, tokens * config_.vocab_size, -1);
  backend_.download(computed, tokens * config_.vocab_size * kFloat, y);
}

void Forward::run_layer(int64_t layer, int64_t tokens, StreamPlaces& stream, int64_t first_position,
                        const LayerPlaces& state, ForwardObserver* observer) {
  K3_CHECK(tokens > 0 && tokens <= max_tokens_);
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerConfig kind = config_.layers[static_cast<size_t>(layer)];
  const int64_t d = config_.hidden_size;
  const double epsilon = config_.rms_norm_epsilon;
  Buffers& b = buffers_;
  observer_ = observer;
  layer_ = layer;

  const float* x = mix_residual(stream, w.attention_res_norm, w.attention_res_proj, tokens);
  backend_.rms_norm(x, w.input_norm, tokens, d, epsilon, b.normed.data());
  show_input(MatrixInput::kAttention, tokens, d, b.normed.data(), d);
  // At the start of a block the raw stream, not its mix, becomes a snapshot, and the stream starts
  // again from nothing.
  bool stream_is_empty = false;
  if (config_.attention_residual_block && layer % *config_.attention_residual_block == 0) {
    backend_.copy(stream.prefix, tokens * d * kFloat,
                  stream.snapshots[static_cast<size_t>(stream.live_snapshots++)]);
    stream_is_empty = true;
  }
  if (kind.attention == AttentionKind::kKda) {
    kda_attention(w.kda, tokens, state);
  } else {
    mla_attention(w.mla, tokens, first_position, state);
  }
  show_branch(kind.attention == AttentionKind::kKda ? Branch::kKda : Branch::kMla, tokens,
              b.branch.data());
  if (stream_is_empty) {
    backend_.copy(b.branch.data(), tokens * d * kFloat, stream.prefix);
  } else {
    backend_.add(stream.prefix, b.branch.data(), tokens * d, stream.prefix);
  }

  x = mix_residual(stream, w.mlp_res_norm, w.mlp_res_proj, tokens);
  backend_.rms_norm(x, w.post_attention_norm, tokens, d, epsilon, b.normed.data());
  show_input(MatrixInput::kFfn, tokens, d, b.normed.data(), d);
  if (kind.ffn == FfnKind::kDense) {
    mlp(w.dense, basis_.dense_block, tokens, b.normed.data(), b.branch.data());
    show_branch(Branch::kDense, tokens, b.branch.data());
  } else {
    mixture_of_experts(w.moe, layer, tokens, stream, observer);
  }
  backend_.add(stream.prefix, b.branch.data(), tokens * d, stream.prefix);

  check_finite(stream.prefix, tokens * d, layer);
  if (observer != nullptr) {
    observer->on_layer(layer, tokens, on_host(stream.prefix, tokens * d, host_.shown));
  }
}

// What the next sub-layer reads: the stream itself, or its mix with the snapshots once there are
// any.
const float* Forward::mix_residual(const StreamPlaces& stream, const float* norm, const float* proj,
                                   int64_t tokens) {
  if (stream.live_snapshots == 0) return stream.prefix;
  std::vector<const float*> sources(stream.snapshots.begin(),
                                    stream.snapshots.begin() + stream.live_snapshots);
  sources.push_back(stream.prefix);
  float* mixed = buffers_.mixed.data();
  backend_.attention_residual_mix(sources, norm, proj, tokens, config_.hidden_size,
                                  config_.rms_norm_epsilon, mixed);
  return mixed;
}

void Forward::show_input(MatrixInput input, int64_t tokens, int64_t width, const float* x,
                         int64_t stride) {
  if (observer_ == nullptr) return;
  observer_->on_matrix_input(layer_, input, tokens, width, stride,
                             on_host(x, (tokens - 1) * stride + width, host_.shown));
}

void Forward::show_branch(Branch branch, int64_t tokens, const float* y) {
  if (observer_ == nullptr) return;
  observer_->on_branch(layer_, branch, tokens,
                       on_host(y, tokens * config_.hidden_size, host_.shown));
}

// normed [tokens, d] -> branch [tokens, d]
void Forward::kda_attention(const KdaWeights& w, int64_t tokens, const LayerPlaces& state) {
  Buffers& b = buffers_;
  const float* x = b.normed.data();
  const int64_t width = config_.kda_width();
  const auto project = [&](const MatrixView& proj, const float* conv, float* window, Floats& y) {
    backend_.matmul(proj, x, tokens, b.conv.data());
    backend_.short_conv(b.conv.data(), conv, tokens, width, config_.conv_kernel, window, y.data());
  };
  project(w.q_proj, w.q_conv, state.q_window, b.q);
  project(w.k_proj, w.k_conv, state.k_window, b.k);
  project(w.v_proj, w.v_conv, state.v_window, b.v);
  backend_.matmul(w.f_a_proj, x, tokens, b.rank.data());
  show_input(MatrixInput::kDecayRank, tokens, w.f_b_proj.cols, b.rank.data(), w.f_b_proj.cols);
  backend_.matmul(w.f_b_proj, b.rank.data(), tokens, b.decay.data());
  backend_.matmul(w.b_proj, x, tokens, b.beta.data());

  const KdaShape shape{.heads = config_.kda_heads,
                       .head_dim = config_.kda_head_dim,
                       .decay_lower_bound = config_.decay_lower_bound,
                       .qk_norm_epsilon = config_.qk_norm_epsilon};
  const KdaInputs in{.q = b.q.data(),
                     .k = b.k.data(),
                     .v = b.v.data(),
                     .decay_logits = b.decay.data(),
                     .beta_logits = b.beta.data(),
                     .a_log = w.a_log,
                     .dt_bias = w.dt_bias};
  backend_.kda(shape, in, tokens, state.kda, b.attended.data());

  if (config_.kda_gate_rank.has_value()) {
    backend_.matmul(w.g_a_proj, x, tokens, b.rank.data());
    show_input(MatrixInput::kGateRank, tokens, w.g_b_proj.cols, b.rank.data(), w.g_b_proj.cols);
    backend_.matmul(w.g_b_proj, b.rank.data(), tokens, b.gate.data());
  } else {
    backend_.matmul(w.g_proj, x, tokens, b.gate.data());
  }
  backend_.kda_output_gate(b.attended.data(), w.o_norm, b.gate.data(), tokens, config_.kda_heads,
                           config_.kda_head_dim, config_.rms_norm_epsilon, b.attended.data());
  rotate(b.attended.data(), tokens, width, basis_.kda_block);
  show_input(MatrixInput::kAttended, tokens, width, b.attended.data(), width);
  backend_.matmul(w.o_proj, b.attended.data(), tokens, b.branch.data());
}

// normed [tokens, d] -> branch [tokens, d]; appends to the cache
void Forward::mla_attention(const MlaWeights& w, int64_t tokens, int64_t first_position,
                            const LayerPlaces& state) {
  Buffers& b = buffers_;
  const float* x = b.normed.data();
  const int64_t latent = config_.kv_lora_rank;
  const int64_t entry = config_.cache_width();
  const double epsilon = config_.low_rank_norm_epsilon;
  if (config_.q_lora_rank.has_value()) {
    backend_.matmul(w.q_a_proj, x, tokens, b.rank.data());
    backend_.rms_norm(b.rank.data(), w.q_a_norm, tokens, *config_.q_lora_rank, epsilon,
                      b.rank.data());
    show_input(MatrixInput::kQueryRank, tokens, w.q_b_proj.cols, b.rank.data(), w.q_b_proj.cols);
    backend_.matmul(w.q_b_proj, b.rank.data(), tokens, b.q.data());
  } else {
    backend_.matmul(w.q_proj, x, tokens, b.q.data());
  }

  // A cache entry is the normed latent followed by the shared extra part as it is: no norm, no
  // rotation.
  float* fresh = b.rank.data();
  backend_.matmul(w.kv_a_proj, x, tokens, fresh);
  for (int64_t t = 0; t < tokens; ++t) {
    backend_.rms_norm(fresh + t * entry, w.kv_a_norm, 1, latent, epsilon, fresh + t * entry);
  }
  show_input(MatrixInput::kCacheLatent, tokens, latent, fresh, entry);
  backend_.append_to_cache(fresh, tokens, entry, first_position, state.cache);

  const MlaShape shape{.heads = config_.mla_heads,
                       .content_dim = config_.qk_content_dim,
                       .extra_dim = config_.qk_extra_dim,
                       .v_dim = config_.v_head_dim,
                       .latent = latent};
  backend_.mla_attention(shape, b.q.data(), w.kv_b_proj, state.cache, first_position, tokens,
                         b.attended.data());
  if (config_.mla_output_gate) {
    backend_.matmul(w.g_proj, x, tokens, b.gate.data());
    backend_.sigmoid_gate(b.attended.data(), b.gate.data(),
                          tokens * config_.mla_heads * config_.v_head_dim, b.attended.data());
  }
  rotate(b.attended.data(), tokens, w.o_proj.cols, basis_.mla_block);
  show_input(MatrixInput::kAttended, tokens, w.o_proj.cols, b.attended.data(), w.o_proj.cols);
  backend_.matmul(w.o_proj, b.attended.data(), tokens, b.branch.data());
}

// y [tokens, d] = down( glu( gate x, up x ) ); down reads blocks of `block` rotated
void Forward::mlp(const MlpWeights& w, int64_t block, int64_t tokens, const float* x, float* y) {
  Buffers& b = buffers_;
  const GluRule rule{config_.activation, config_.situ_beta, config_.situ_linear_beta};
  backend_.matmul(w.gate_proj, x, tokens, b.ffn_gate.data());
  backend_.matmul(w.up_proj, x, tokens, b.ffn_up.data());
  backend_.glu(rule, b.ffn_gate.data(), b.ffn_up.data(), tokens * w.gate_proj.rows,
               b.ffn_gate.data());
  rotate(b.ffn_gate.data(), tokens, w.down_proj.cols, block);
  show_input(MatrixInput::kInner, tokens, w.down_proj.cols, b.ffn_gate.data(), w.down_proj.cols);
  backend_.matmul(w.down_proj, b.ffn_gate.data(), tokens, y);
}

// normed [tokens, d] -> branch [tokens, d]
void Forward::mixture_of_experts(const MoeWeights& w, int64_t layer, int64_t tokens,
                                 const StreamPlaces& stream, ForwardObserver* observer) {
  Buffers& b = buffers_;
  const float* x = b.normed.data();
  const int64_t d = config_.hidden_size;
  const int64_t k = config_.experts_per_token;
  const auto experts = static_cast<int64_t>(w.source_ids.size());
  const RouterRule rule{.experts_per_token = k,
                        .renormalize = config_.renormalize,
                        .routed_scaling_factor = config_.routed_scaling_factor};
  // The router reads the full stream, the experts its latent.
  backend_.matmul(w.gate, x, tokens, b.router_logits.data());
  const bool observes_experts = observer != nullptr && observer->wants_experts();
  if (observes_experts) {
    if (!backend_.works_on_host()) {
      throw Error("what experts put out is recorded on the host only: --trace needs --backend cpu");
    }
    b.route_scores = make_vector<float>(backend_, tokens * experts);
    host_.expert_norms.assign(static_cast<size_t>(tokens * k), NAN);
  }
  backend_.route(rule, b.router_logits.data(), w.score_bias, w.router_ids, tokens, experts,
                 b.route_slots.data(), b.route_weights.data(),
                 observes_experts ? b.route_scores.data() : nullptr);
  drop_choices(w, tokens);
  // What the host has to know of the choices, unless nobody there asks.
  const bool held = backend_.holds_experts();
  const int32_t* slots = nullptr;
  if (!held || observer != nullptr) slots = on_host(b.route_slots.data(), tokens * k, host_.slots);
  if (observer != nullptr) {
    host_.source_ids.resize(static_cast<size_t>(tokens * k));
    std::transform(slots, slots + tokens * k, host_.source_ids.begin(), [&](int32_t slot) {
      return slot < 0 ? -1 : w.source_ids[static_cast<size_t>(slot)];
    });
    observer->on_routing(layer, tokens, host_.source_ids.data(),
                         on_host(b.route_weights.data(), tokens * k, host_.weights));
  }

  // From here to run_experts what is missing is being read.
  const int64_t requested = held ? tokens : request_experts(w, slots, 0, tokens);
  if (!held) prefetch_experts(layer + 1, tokens, stream);
  if (config_.shared_experts > 0) {
    mlp(w.shared, basis_.shared_block, tokens, x, b.shared.data());
    show_branch(Branch::kShared, tokens, b.shared.data());
  }
  const float* z = x;
  if (config_.latent_size.has_value()) {
    backend_.matmul(w.down_proj, x, tokens, b.latent.data());
    z = b.latent.data();
  }
  if (held) {
    backend_.run_bank(*w.bank, experts_shape(w), b.route_slots.data(), b.route_weights.data(), k, z,
                      tokens, b.routed.data());
  } else {
    run_experts(w, slots, tokens, requested, z,
                observes_experts ? host_.expert_norms.data() : nullptr);
  }
  if (observes_experts) {
    observer->on_experts({.layer = layer,
                          .tokens = tokens,
                          .source_ids = w.source_ids,
                          .score_bias = w.score_bias,
                          .scores = b.route_scores.data(),
                          .slots = b.route_slots.data(),
                          .weights = b.route_weights.data(),
                          .norms = host_.expert_norms.data()});
  }
  if (config_.latent_norm) {  // on the weighted sum, not on each expert
    backend_.rms_norm(b.routed.data(), w.norm, tokens, config_.expert_width(),
                      config_.rms_norm_epsilon, b.routed.data());
  }
  const float* routed = b.routed.data();
  if (config_.latent_size.has_value()) {
    rotate(b.routed.data(), tokens, config_.expert_width(), basis_.latent_block);
    show_input(MatrixInput::kRouted, tokens, w.up_proj.cols, b.routed.data(), w.up_proj.cols);
    backend_.matmul(w.up_proj, b.routed.data(), tokens, b.branch.data());
    routed = b.branch.data();
  }
  show_branch(Branch::kRouted, tokens, routed);
  if (config_.shared_experts == 0) {
    if (routed != b.branch.data()) backend_.copy(routed, tokens * d * kFloat, b.branch.data());
    return;
  }
  backend_.add(routed, b.shared.data(), tokens * d, b.branch.data());
}

// x [tokens, width], which the next product reads, into the basis of its weights.
void Forward::rotate(float* x, int64_t tokens, int64_t width, int64_t block) {
  if (block > 1) backend_.hadamard(x, tokens, width, block, x);
}

// One non-finite value spreads over the whole stream and then into the caches, where it would
// poison every later token.
void Forward::check_finite(const float* values, int64_t count, int64_t layer) {
  // Logits come last.
  const int64_t place = layer < 0 ? std::ssize(config_.layers) : layer;
  check_found(backend_.find_not_finite(values, count, place));
}

void Forward::check_found(const std::optional<NotFinite>& found) const {
  if (!found) return;
  const std::string place = found->place == std::ssize(config_.layers)
                                ? "the logits"
                                : "the stream after layer " + std::to_string(found->place);
  throw Error(weights_.pack().path(), ": ", place, ": value ", found->index, " is ", found->value,
              ", expected a finite number (backend ", backend_.name(), ")");
}

}  // namespace k3
