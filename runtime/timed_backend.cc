#include "runtime/timed_backend.h"

#include <algorithm>
#include <set>

#include "schema/layout.h"
#include "schema/pack_index.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

constexpr int64_t kFloatBytes = 4;

int64_t matrix_bytes(const MatrixView& matrix) {
  const int64_t planes = matrix.second_codes != nullptr ? 2 : 1;
  return matrix.rows * (planes * matrix.row_stride_bytes + matrix.scales_per_row +
                        (matrix.row_scales != nullptr ? kFloatBytes : 0));
}

int64_t expert_weights(const ExpertBands& place) {
  return 3 * place.latent * place.inner;
}

std::string with_format(const std::string& operation, Format format) {
  return operation + " " + std::string(format_name(format));
}

}  // namespace

template <class Call>
void TimedBackend::timed(const std::string& operation, int64_t bytes, const Call& call) {
  const Stopwatch watch;
  call();
  inner_.finish();
  OperationCost& cost = costs_[operation];
  cost.seconds += watch.seconds();
  cost.calls += 1;
  cost.bytes += bytes;
}

template <class Call>
void TimedBackend::timed_product(const std::string& operation, Format format, int64_t bytes,
                                 int64_t weights, const Call& call) {
  const std::string name = with_format(operation, format);
  timed(name, bytes, call);
  costs_[name].weights += weights;
  costs_[name].format = format;
}

// Never a repeated one: its operations would not come by here.
std::optional<NotFinite> TimedBackend::run_pass(const Pass& pass,
                                                const std::function<void()>& operations) {
  Pass once = pass;
  once.repeatable_state = nullptr;
  return inner_.run_pass(once, operations);
}

void TimedBackend::run_bank(const PackBank& bank, const RoutedExpertsShape& shape,
                            const int32_t* slots, const float* weights, int64_t k, const float* z,
                            int64_t tokens, float* u) {
  // Which experts they were only the device knows: as many as there can be, for a single token.
  const int64_t experts = std::min(tokens * k, std::ssize(bank.experts));
  timed_product("routed experts", shape.place.format, experts * shape.place.extent_bytes(),
                experts * expert_weights(shape.place),
                [&] { inner_.run_bank(bank, shape, slots, weights, k, z, tokens, u); });
}

void TimedBackend::embed(const MatrixView& table, std::span<const int32_t> ids, float* y) {
  const auto rows = static_cast<int64_t>(ids.size());
  timed(with_format("embed", table.format), rows * table.row_stride_bytes,
        [&] { inner_.embed(table, ids, y); });
}

void TimedBackend::matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) {
  timed_product("matmul", weights.format, matrix_bytes(weights), weights.rows * weights.cols,
                [&] { inner_.matmul(weights, x, tokens, y); });
}

void TimedBackend::add(const float* a, const float* b, int64_t n, float* y) {
  timed("add", 0, [&] { inner_.add(a, b, n, y); });
}

void TimedBackend::glu(const GluRule& rule, const float* gate, const float* up, int64_t n,
                       float* y) {
  timed("glu", 0, [&] { inner_.glu(rule, gate, up, n, y); });
}

void TimedBackend::sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) {
  timed("sigmoid gate", 0, [&] { inner_.sigmoid_gate(x, gate_logits, n, y); });
}

void TimedBackend::rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width,
                            double epsilon, float* y) {
  timed("rms norm", width * kFloatBytes,
        [&] { inner_.rms_norm(x, weight, tokens, width, epsilon, y); });
}

void TimedBackend::hadamard(const float* x, int64_t tokens, int64_t width, int64_t block,
                            float* y) {
  timed("hadamard", 0, [&] { inner_.hadamard(x, tokens, width, block, y); });
}

void TimedBackend::attention_residual_mix(std::span<const float* const> sources, const float* norm,
                                          const float* proj, int64_t tokens, int64_t hidden,
                                          double epsilon, float* y) {
  const auto count = static_cast<int64_t>(sources.size());
  timed("attention residual", (count * tokens + 2) * hidden * kFloatBytes,
        [&] { inner_.attention_residual_mix(sources, norm, proj, tokens, hidden, epsilon, y); });
}

void TimedBackend::short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                              int64_t taps, float* window, float* y) {
  timed("short conv", (2 * taps - 1) * channels * kFloatBytes,
        [&] { inner_.short_conv(x, weight, tokens, channels, taps, window, y); });
}

void TimedBackend::kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
                       float* o) {
  timed("kda", shape.heads * shape.head_dim * shape.head_dim * kFloatBytes,
        [&] { inner_.kda(shape, in, tokens, state, o); });
}

void TimedBackend::kda_output_gate(const float* o, const float* norm_weight,
                                   const float* gate_logits, int64_t tokens, int64_t heads,
                                   int64_t head_dim, double epsilon, float* y) {
  timed("kda output gate", 0, [&] {
    inner_.kda_output_gate(o, norm_weight, gate_logits, tokens, heads, head_dim, epsilon, y);
  });
}

void TimedBackend::mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                                 const float* cache, int64_t first_position, int64_t tokens,
                                 float* o) {
  const int64_t cached = (first_position + tokens) * (shape.latent + shape.extra_dim);
  timed("mla attention", matrix_bytes(kv_b) + cached * kFloatBytes,
        [&] { inner_.mla_attention(shape, q, kv_b, cache, first_position, tokens, o); });
}

void TimedBackend::route(const RouterRule& rule, const float* logits, const float* bias,
                         const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
                         float* weights, float* scores) {
  timed("route", experts * kFloatBytes, [&] {
    inner_.route(rule, logits, bias, source_ids, tokens, experts, slots, weights, scores);
  });
}

void TimedBackend::routed_experts(const RoutedExpertsShape& shape,
                                  std::span<const ExpertWeights* const> experts,
                                  const float* weights, int64_t k, const float* z, int64_t tokens,
                                  float* u) {
  std::set<const ExpertWeights*> distinct(experts.begin(), experts.end());
  distinct.erase(nullptr);
  const auto count = static_cast<int64_t>(distinct.size());
  timed_product("routed experts", shape.place.format, count * shape.place.extent_bytes(),
                count * expert_weights(shape.place),
                [&] { inner_.routed_experts(shape, experts, weights, k, z, tokens, u); });
}

}  // namespace k3
