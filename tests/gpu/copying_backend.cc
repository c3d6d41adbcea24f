#include "tests/gpu/copying_backend.h"

#include <map>
#include <memory>
#include <vector>

#include "kernels/operations_cuda.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/prepared_vectors.h"

namespace k3::test {
namespace {

using Floats = DeviceArray<float>;

Floats room(int64_t count) {
  return Floats(static_cast<size_t>(count));
}

}  // namespace

void CopyingBackend::embed(const MatrixView& table, std::span<const int32_t> ids, float* y) {
  const DeviceMatrix there(table);
  DeviceArray<int32_t> ids_there(ids);
  const auto count = static_cast<int64_t>(ids.size());
  Floats out = room(count * table.cols);
  check_cuda(cuda::embed(there.view(), ids_there.data(), count, out.data(), the_stream()));
  out.copy_to(y);
}

void CopyingBackend::matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) {
  const DeviceMatrix there(weights);
  Floats x_there(x, tokens * weights.cols);
  PreparedOnDevice prepared(weights.format, x_there.data(), tokens, weights.cols);
  Floats out = room(tokens * weights.rows);
  check_cuda(cuda::matmul(there.view(), prepared.view(), tokens, out.data(), the_stream()));
  out.copy_to(y);
}

void CopyingBackend::add(const float* a, const float* b, int64_t n, float* y) {
  Floats a_there(a, n);
  Floats b_there(b, n);
  check_cuda(cuda::add(a_there.data(), b_there.data(), n, a_there.data(), the_stream()));
  a_there.copy_to(y);
}

void CopyingBackend::glu(const GluRule& rule, const float* gate, const float* up, int64_t n,
                         float* y) {
  Floats gate_there(gate, n);
  Floats up_there(up, n);
  check_cuda(
      cuda::glu(rule, gate_there.data(), up_there.data(), n, gate_there.data(), the_stream()));
  gate_there.copy_to(y);
}

void CopyingBackend::sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) {
  Floats x_there(x, n);
  Floats gate_there(gate_logits, n);
  check_cuda(
      cuda::sigmoid_gate(x_there.data(), gate_there.data(), n, x_there.data(), the_stream()));
  x_there.copy_to(y);
}

void CopyingBackend::rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width,
                              double epsilon, float* y) {
  Floats x_there(x, tokens * width);
  Floats weight_there(weight, width);
  check_cuda(cuda::rms_norm(x_there.data(), width, weight_there.data(), tokens, width, epsilon,
                            x_there.data(), width, the_stream()));
  x_there.copy_to(y);
}

void CopyingBackend::hadamard(const float* x, int64_t tokens, int64_t width, int64_t block,
                              float* y) {
  Floats x_there(x, tokens * width);
  check_cuda(cuda::hadamard(x_there.data(), tokens, width, block, x_there.data(), the_stream()));
  x_there.copy_to(y);
}

void CopyingBackend::attention_residual_mix(std::span<const float* const> sources,
                                            const float* norm, const float* proj, int64_t tokens,
                                            int64_t hidden, double epsilon, float* y) {
  std::vector<std::unique_ptr<Floats>> there;
  std::vector<const float*> places;
  for (const float* source : sources) {
    there.push_back(std::make_unique<Floats>(source, tokens * hidden));
    places.push_back(there.back()->data());
  }
  const auto count = static_cast<int64_t>(sources.size());
  Floats norm_there(norm, hidden);
  Floats proj_there(proj, hidden);
  DeviceArray<double> weights(static_cast<size_t>(tokens * count));
  Floats out = room(tokens * hidden);
  check_cuda(cuda::attention_residual_mix(places.data(), count, norm_there.data(),
                                          proj_there.data(), tokens, hidden, epsilon,
                                          weights.data(), out.data(), the_stream()));
  out.copy_to(y);
}

void CopyingBackend::short_conv(const float* x, const float* weight, int64_t tokens,
                                int64_t channels, int64_t taps, float* window, float* y) {
  Floats x_there(x, tokens * channels);
  Floats weight_there(weight, channels * taps);
  Floats window_there(window, (taps - 1) * channels);
  Floats out = room(tokens * channels);
  check_cuda(cuda::short_conv(x_there.data(), weight_there.data(), tokens, channels, taps,
                              window_there.data(), out.data(), the_stream()));
  out.copy_to(y);
  window_there.copy_to(window);
}

void CopyingBackend::kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
                         float* o) {
  const int64_t width = shape.heads * shape.head_dim;
  Floats q(in.q, tokens * width), k(in.k, tokens * width), v(in.v, tokens * width);
  Floats decay(in.decay_logits, tokens * width), beta(in.beta_logits, tokens * shape.heads);
  Floats a_log(in.a_log, shape.heads), dt_bias(in.dt_bias, width);
  Floats state_there(state, width * shape.head_dim);
  Floats out = room(tokens * width);
  const KdaInputs there{q.data(),    k.data(),     v.data(),      decay.data(),
                        beta.data(), a_log.data(), dt_bias.data()};
  check_cuda(cuda::kda(shape, there, tokens, state_there.data(), out.data(), the_stream()));
  out.copy_to(o);
  state_there.copy_to(state);
}

void CopyingBackend::kda_output_gate(const float* o, const float* norm_weight,
                                     const float* gate_logits, int64_t tokens, int64_t heads,
                                     int64_t head_dim, double epsilon, float* y) {
  const int64_t values = tokens * heads * head_dim;
  Floats o_there(o, values);
  Floats weight_there(norm_weight, head_dim);
  Floats gate_there(gate_logits, values);
  check_cuda(cuda::kda_output_gate(o_there.data(), weight_there.data(), gate_there.data(), tokens,
                                   heads, head_dim, epsilon, o_there.data(), the_stream()));
  o_there.copy_to(y);
}

void CopyingBackend::mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                                   const float* cache, int64_t first_position, int64_t tokens,
                                   float* o) {
  const int64_t positions = first_position + tokens;
  Floats q_there(q, tokens * shape.heads * shape.query_dim());
  const DeviceMatrix kv_b_there(kv_b);
  Floats cache_there(cache, positions * shape.cache_width());
  DeviceArray<int64_t> first_there(&first_position, 1);
  DeviceArray<std::byte> scratch(
      static_cast<size_t>(tokens * cuda::mla_scratch_bytes(shape, positions)));
  Floats out = room(tokens * shape.heads * shape.v_dim);
  check_cuda(cuda::mla_attention(shape, q_there.data(), kv_b_there.view(), cache_there.data(),
                                 first_there.data(), 0, positions, tokens, scratch.data(),
                                 out.data(), the_stream()));
  out.copy_to(o);
}

void CopyingBackend::route(const RouterRule& rule, const float* logits, const float* bias,
                           const int32_t* source_ids, int64_t tokens, int64_t experts,
                           int32_t* slots, float* weights, float* scores) {
  const int64_t choices = tokens * rule.experts_per_token;
  Floats logits_there(logits, tokens * experts);
  Floats bias_there(bias, experts);
  DeviceArray<int32_t> sources_there(source_ids, experts);
  DeviceArray<uint64_t> keys(static_cast<size_t>(tokens * experts));
  Floats scores_there = room(tokens * experts);
  DeviceArray<int32_t> slots_there(static_cast<size_t>(choices));
  Floats weights_there = room(choices);
  check_cuda(cuda::route(rule, logits_there.data(), bias_there.data(), sources_there.data(), tokens,
                         experts, keys.data(), scores_there.data(), slots_there.data(),
                         weights_there.data(), the_stream()));
  slots_there.copy_to(slots);
  weights_there.copy_to(weights);
  if (scores != nullptr) scores_there.copy_to(scores);
}

void CopyingBackend::routed_experts(const RoutedExpertsShape& shape,
                                    std::span<const ExpertWeights* const> experts,
                                    const float* weights, int64_t k, const float* z, int64_t tokens,
                                    float* u) {
  const ExpertBands& place = shape.place;
  std::map<const ExpertWeights*, int32_t> slot_of;
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> extents;
  std::vector<ExpertWeights> table;
  std::vector<int32_t> slots;
  for (const ExpertWeights* expert : experts) {
    if (expert != nullptr && slot_of.emplace(expert, static_cast<int32_t>(table.size())).second) {
      extents.push_back(
          std::make_unique<DeviceArray<std::byte>>(expert->extent, place.extent_bytes()));
      table.push_back({extents.back()->data(), expert->least_exponent});
    }
    slots.push_back(expert == nullptr ? -1 : slot_of.at(expert));
  }
  const auto visits = static_cast<size_t>(tokens * k);
  const auto bands = static_cast<size_t>(place.bands());
  const int64_t outputs = tokens * place.latent;
  DeviceArray<ExpertWeights> table_there(table);
  DeviceArray<int32_t> slots_there(slots);
  Floats weights_there(weights, tokens * k);
  Floats z_there(z, outputs);
  PreparedOnDevice prepared(place.format, z_there.data(), tokens, place.latent);
  Floats gate = room(tokens * k * place.inner);
  Floats up = room(tokens * k * place.inner);
  DeviceArray<std::byte> tiles(visits * bands *
                               static_cast<size_t>(cuda::hidden_tile_bytes(place)));
  DeviceArray<ActivationStep> steps(visits * bands);
  DeviceArray<unsigned long long> sums(static_cast<size_t>(outputs));
  DeviceArray<unsigned> out_of_range(static_cast<size_t>(outputs));
  Floats out = room(outputs);
  check_cuda(cuda::routed_experts(
      shape, table_there.data(), slots_there.data(), weights_there.data(), k, prepared.view(),
      tokens,
      {gate.data(), up.data(), tiles.data(), steps.data(), sums.data(), out_of_range.data()},
      out.data(), the_stream()));
  out.copy_to(u);
}

}  // namespace k3::test
