#include "runtime/gradient_tape.h"

#include <algorithm>
#include <utility>

#include "kernels/gradients.h"
#include "schema/error.h"

namespace k3 {
namespace {

constexpr int64_t kFloat = sizeof(float);

}  // namespace

GradientTape::GradientTape(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {
  if (inner_->works_on_host()) return;
  throw Error("--backend is ", inner_->name(), ", expected one whose gradients there are: cpu or ",
              "reference");
}

GradientTape::~GradientTape() = default;

void GradientTape::start() {
  steps_.clear();
  regions_.clear();
  is_recording_ = true;
}

void GradientTape::play_back() {
  is_recording_ = false;
  while (!steps_.empty()) {
    steps_.back()();
    steps_.pop_back();
  }
}

void GradientTape::collect_scales(const MatrixView& matrix, float* gradient) {
  K3_CHECK(lies_in_blocks160(matrix.format));
  parameters_[matrix.codes] = gradient;
}

void GradientTape::collect_weights(const MatrixView& matrix, float* gradient) {
  weights_[matrix.codes] = gradient;
}

void GradientTape::collect_gain(const float* gain, float* gradient) {
  parameters_[gain] = gradient;
}

void GradientTape::forget_parameters() {
  parameters_.clear();
  weights_.clear();
}

std::span<float> GradientTape::gradient(const float* values, int64_t count) {
  return {place(values, count), static_cast<size_t>(count)};
}

GradientTape::Values GradientTape::keep(const float* values, int64_t count) const {
  return is_recording_ ? Values(values, values + count) : Values();
}

// The gradients of values in memory, in one region. Joins the regions that these lie across: a
// cache may be written token by token and read as a whole.
float* GradientTape::place(const float* values, int64_t count) {
  auto next = regions_.upper_bound(values);
  if (next != regions_.begin()) {
    const auto& [begin, region] = *std::prev(next);
    if (values < begin + region.count) --next;
  }
  if (next != regions_.end() && next->first <= values &&
      values + count <= next->first + next->second.count) {
    return next->second.gradients.data() + (values - next->first);
  }
  const float* begin = values;
  const float* end = values + count;
  std::vector<std::pair<const float*, Region>> parts;
  while (next != regions_.end() && next->first < end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->first + next->second.count);
    parts.emplace_back(next->first, std::move(next->second));
    next = regions_.erase(next);
  }
  Region& joined = regions_[begin];
  joined.count = end - begin;
  joined.gradients.resize(static_cast<size_t>(joined.count));
  for (const auto& [address, part] : parts) {
    std::copy(part.gradients.begin(), part.gradients.end(),
              joined.gradients.begin() + (address - begin));
  }
  return joined.gradients.data() + (values - begin);
}

// Before several pointers of place() are in use together: none of these moves another afterwards.
void GradientTape::make_places(std::initializer_list<std::pair<const float*, int64_t>> ranges) {
  for (const auto& [values, count] : ranges) place(values, count);
}

// Of an operation's output: what came before in that memory had another gradient.
GradientTape::Values GradientTape::take(const float* values, int64_t count) {
  float* const at = place(values, count);
  Values taken(at, at + count);
  std::fill_n(at, count, 0.0F);
  return taken;
}

// To an input that an operation passed on as it was.
void GradientTape::give(const Values& gradients, const float* values) {
  float* const sum = place(values, std::ssize(gradients));
  for (size_t i = 0; i < gradients.size(); ++i) sum[i] += gradients[i];
}

float* GradientTape::parameter(const void* address) const {
  const auto found = parameters_.find(address);
  return found == parameters_.end() ? nullptr : found->second;
}

void GradientTape::copy(const void* src, int64_t bytes, void* dst) {
  inner_->copy(src, bytes, dst);
  const auto* from = static_cast<const float*>(src);
  const auto* to = static_cast<const float*>(dst);
  write_down([this, from, to, count = bytes / kFloat] { give(take(to, count), from); });
}

// The host's own copies are not read by operations.
void GradientTape::upload(const void* host, int64_t bytes, void* dst) {
  inner_->upload(host, bytes, dst);
}

void GradientTape::download(const void* src, int64_t bytes, void* host) {
  inner_->download(src, bytes, host);
}

void GradientTape::append_to_cache(const float* entries, int64_t tokens, int64_t width,
                                   int64_t first_position, float* cache) {
  K3_CHECK(!is_recording_ || first_position == 0);
  copy(entries, tokens * width * kFloat, cache + first_position * width);
}

void GradientTape::embed(const MatrixView& table, std::span<const int32_t> ids, float* y) {
  inner_->embed(table, ids, y);
}

void GradientTape::matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) {
  Values read = keep(x, tokens * weights.cols);
  inner_->matmul(weights, x, tokens, y);
  write_down([=, this, read = std::move(read)] {
    const Values g = take(y, tokens * weights.rows);
    gradient::matmul(weights, read.data(), g.data(), tokens, place(x, tokens * weights.cols),
                     parameter(weights.codes));
    if (const auto found = weights_.find(weights.codes); found != weights_.end()) {
      gradient::matmul_weights(read.data(), g.data(), tokens, weights.rows, weights.cols,
                               found->second);
    }
  });
}

void GradientTape::add(const float* a, const float* b, int64_t n, float* y) {
  inner_->add(a, b, n, y);
  write_down([=, this] {
    const Values g = take(y, n);
    give(g, a);
    give(g, b);
  });
}

void GradientTape::glu(const GluRule& rule, const float* gate, const float* up, int64_t n,
                       float* y) {
  Values gates = keep(gate, n);
  Values ups = keep(up, n);
  inner_->glu(rule, gate, up, n, y);
  write_down([=, this, gates = std::move(gates), ups = std::move(ups)] {
    const Values g = take(y, n);
    make_places({{gate, n}, {up, n}});
    gradient::glu(rule, gates.data(), ups.data(), g.data(), n, place(gate, n), place(up, n));
  });
}

void GradientTape::sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) {
  Values read = keep(x, n);
  Values logits = keep(gate_logits, n);
  inner_->sigmoid_gate(x, gate_logits, n, y);
  write_down([=, this, read = std::move(read), logits = std::move(logits)] {
    const Values g = take(y, n);
    make_places({{x, n}, {gate_logits, n}});
    gradient::sigmoid_gate(read.data(), logits.data(), g.data(), n, place(x, n),
                           place(gate_logits, n));
  });
}

void GradientTape::rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width,
                            double epsilon, float* y) {
  Values read = keep(x, tokens * width);
  inner_->rms_norm(x, weight, tokens, width, epsilon, y);
  write_down([=, this, read = std::move(read)] {
    const Values g = take(y, tokens * width);
    gradient::rms_norm(read.data(), weight, g.data(), tokens, width, epsilon,
                       place(x, tokens * width), parameter(weight));
  });
}

// A rotation in blocks that is its own inverse: so is its transpose.
void GradientTape::hadamard(const float* x, int64_t tokens, int64_t width, int64_t block,
                            float* y) {
  inner_->hadamard(x, tokens, width, block, y);
  write_down([=, this] {
    Values g = take(y, tokens * width);
    inner_->hadamard(g.data(), tokens, width, block, g.data());
    give(g, x);
  });
}

void GradientTape::attention_residual_mix(std::span<const float* const> sources, const float* norm,
                                          const float* proj, int64_t tokens, int64_t hidden,
                                          double epsilon, float* y) {
  const int64_t n = tokens * hidden;
  std::vector<Values> read;
  for (const float* source : sources) read.push_back(keep(source, n));
  const std::vector<const float*> addresses(sources.begin(), sources.end());
  inner_->attention_residual_mix(sources, norm, proj, tokens, hidden, epsilon, y);
  write_down([=, this, read = std::move(read)] {
    const Values g = take(y, n);
    for (const float* source : addresses) place(source, n);
    std::vector<const float*> values;
    std::vector<float*> sums;
    for (size_t i = 0; i < read.size(); ++i) {
      values.push_back(read[i].data());
      sums.push_back(place(addresses[i], n));
    }
    gradient::attention_residual_mix(values, norm, proj, g.data(), tokens, hidden, epsilon, sums,
                                     parameter(norm));
  });
}

void GradientTape::short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                              int64_t taps, float* window, float* y) {
  const int64_t n = tokens * channels;
  Values read = keep(x, n);
  inner_->short_conv(x, weight, tokens, channels, taps, window, y);
  write_down([=, this, read = std::move(read)] {
    const Values g = take(y, n);
    gradient::short_conv(read.data(), weight, g.data(), tokens, channels, taps, place(x, n));
  });
}

void GradientTape::kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
                       float* o) {
  const int64_t n = tokens * shape.heads * shape.head_dim;
  const int64_t betas = tokens * shape.heads;
  Values q = keep(in.q, n);
  Values k = keep(in.k, n);
  Values v = keep(in.v, n);
  Values decay = keep(in.decay_logits, n);
  Values beta = keep(in.beta_logits, betas);
  inner_->kda(shape, in, tokens, state, o);
  write_down([=, this, q = std::move(q), k = std::move(k), v = std::move(v),
              decay = std::move(decay), beta = std::move(beta)] {
    const Values g = take(o, n);
    make_places({{in.q, n}, {in.k, n}, {in.v, n}, {in.decay_logits, n}, {in.beta_logits, betas}});
    KdaInputs read = in;
    read.q = q.data();
    read.k = k.data();
    read.v = v.data();
    read.decay_logits = decay.data();
    read.beta_logits = beta.data();
    gradient::kda(shape, read, tokens, g.data(),
                  {.q = place(in.q, n),
                   .k = place(in.k, n),
                   .v = place(in.v, n),
                   .decay_logits = place(in.decay_logits, n),
                   .beta_logits = place(in.beta_logits, betas)});
  });
}

void GradientTape::kda_output_gate(const float* o, const float* norm_weight,
                                   const float* gate_logits, int64_t tokens, int64_t heads,
                                   int64_t head_dim, double epsilon, float* y) {
  const int64_t n = tokens * heads * head_dim;
  Values read = keep(o, n);
  Values logits = keep(gate_logits, n);
  inner_->kda_output_gate(o, norm_weight, gate_logits, tokens, heads, head_dim, epsilon, y);
  write_down([=, this, read = std::move(read), logits = std::move(logits)] {
    const Values g = take(y, n);
    make_places({{o, n}, {gate_logits, n}});
    gradient::kda_output_gate(read.data(), norm_weight, logits.data(), g.data(), tokens, heads,
                              head_dim, epsilon, place(o, n), parameter(norm_weight),
                              place(gate_logits, n));
  });
}

void GradientTape::mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                                 const float* cache, int64_t first_position, int64_t tokens,
                                 float* o) {
  K3_CHECK(!is_recording_ || first_position == 0);
  const int64_t queries = tokens * shape.heads * shape.query_dim();
  const int64_t cached = tokens * shape.cache_width();
  Values query = keep(q, queries);
  Values entries = keep(cache, cached);
  inner_->mla_attention(shape, q, kv_b, cache, first_position, tokens, o);
  write_down([=, this, query = std::move(query), entries = std::move(entries)] {
    const Values g = take(o, tokens * shape.heads * shape.v_dim);
    make_places({{q, queries}, {cache, cached}});
    gradient::mla_attention(shape, query.data(), kv_b, entries.data(), tokens, g.data(),
                            place(q, queries), place(cache, cached));
  });
}

void GradientTape::route(const RouterRule& rule, const float* logits, const float* bias,
                         const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
                         float* weights, float* scores) {
  const int64_t choices = tokens * rule.experts_per_token;
  Values read = keep(logits, tokens * experts);
  inner_->route(rule, logits, bias, source_ids, tokens, experts, slots, weights, scores);
  if (!is_recording_) return;
  std::vector<int32_t> chosen(slots, slots + choices);
  write_down([=, this, read = std::move(read), chosen = std::move(chosen)] {
    const Values g = take(weights, choices);
    gradient::route(rule, read.data(), chosen.data(), g.data(), tokens, experts,
                    place(logits, tokens * experts));
  });
}

void GradientTape::routed_experts(const RoutedExpertsShape& shape,
                                  std::span<const ExpertWeights* const> experts,
                                  const float* weights, int64_t k, const float* z, int64_t tokens,
                                  float* u) {
  const int64_t n = tokens * shape.place.latent;
  Values read = keep(z, n);
  Values shares = keep(weights, tokens * k);
  const std::vector<const ExpertWeights*> chosen(experts.begin(), experts.end());
  inner_->routed_experts(shape, experts, weights, k, z, tokens, u);
  write_down([=, this, read = std::move(read), shares = std::move(shares)] {
    const Values g = take(u, n);
    make_places({{z, n}, {weights, tokens * k}});
    gradient::routed_experts(shape, chosen, shares.data(), k, read.data(), tokens, g.data(),
                             place(z, n), place(weights, tokens * k));
  });
}

}  // namespace k3
