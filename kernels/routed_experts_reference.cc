// The meaning of the routed experts: float activations, double sums over inner values and then over
// experts, both in index order; nothing is quantized and no fixed point is involved.
//
// Each visit's output is kept until all of its token's are there, so that an expert can be decoded
// once for all tokens that visit it and the sum over experts still runs in the order of the slots.
// Pieces of the batch bound what is kept.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/activation.h"
#include "kernels/expert_visits.h"
#include "kernels/matmul.h"
#include "kernels/routed_experts.h"
#include "schema/error.h"

namespace k3::reference {
namespace {

constexpr int64_t kKeptValues = int64_t{1} << 22;  // doubles of a piece's outputs: 32 MiB

// outputs[v, :] = expert(z[v, :]) for `visits` vectors.
void apply_expert(const RoutedExpertsShape& shape, const ExpertWeights& expert,
                  const std::vector<float>& z, int64_t visits, double* outputs) {
  for (int64_t band = 0; band < shape.place.bands(); ++band) {
    const auto part = [&](ExpertMatrix matrix) {
      return view_expert_part(shape, expert, band, matrix);
    };
    const auto values = static_cast<size_t>(visits * shape.place.band_inner(band));
    std::vector<float> gate(values);
    std::vector<float> up(values);
    matmul(part(ExpertMatrix::kW1), z.data(), visits, gate.data());
    matmul(part(ExpertMatrix::kW3), z.data(), visits, up.data());
    glu(glu_rule(shape), gate.data(), up.data(), static_cast<int64_t>(values), gate.data());
    add_products(part(ExpertMatrix::kW2), gate.data(), visits, outputs);
  }
}

// routed_experts for a batch small enough to keep every visit's output.
void route_piece(const RoutedExpertsShape& shape, std::span<const ExpertWeights* const> experts,
                 const float* weights, int64_t k, const float* z, int64_t tokens, float* u,
                 float* norms) {
  const int64_t latent = shape.place.latent;
  std::vector<double> outputs(static_cast<size_t>(tokens * k * latent));  // by slot
  for (const ExpertVisits& group : group_visits(experts)) {
    const auto visits = static_cast<int64_t>(group.slots.size());
    std::vector<float> inputs(static_cast<size_t>(visits * latent));
    std::vector<double> sums(static_cast<size_t>(visits * latent));
    for (int64_t v = 0; v < visits; ++v) {
      const int64_t token = group.slots[static_cast<size_t>(v)] / k;
      std::copy_n(z + token * latent, latent, inputs.data() + v * latent);
    }
    apply_expert(shape, *group.expert, inputs, visits, sums.data());
    for (int64_t v = 0; v < visits; ++v) {
      std::copy_n(sums.data() + v * latent, latent,
                  outputs.data() + group.slots[static_cast<size_t>(v)] * latent);
    }
  }
  for (int64_t slot = 0; norms != nullptr && slot < tokens * k; ++slot) {
    double sum = 0;
    for (int64_t r = 0; r < latent; ++r) {
      const double output = outputs[static_cast<size_t>(slot * latent + r)];
      sum += output * output;
    }
    norms[slot] = static_cast<float>(std::sqrt(sum));
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < latent; ++r) {
      double sum = 0;
      for (int64_t slot = t * k; slot < (t + 1) * k; ++slot) {
        if (experts[static_cast<size_t>(slot)] == nullptr) continue;
        sum += static_cast<double>(weights[slot]) * outputs[static_cast<size_t>(slot * latent + r)];
      }
      u[t * latent + r] = static_cast<float>(sum);
    }
  }
}

}  // namespace

void routed_experts(const RoutedExpertsShape& shape, std::span<const ExpertWeights* const> experts,
                    const float* weights, int64_t k, const float* z, int64_t tokens, float* u) {
  K3_CHECK(!lies_in_blocks160(shape.place.format));
  K3_CHECK(static_cast<int64_t>(experts.size()) == tokens * k);
  const int64_t latent = shape.place.latent;
  const int64_t piece = std::max<int64_t>(1, kKeptValues / std::max<int64_t>(1, k * latent));
  for (int64_t begin = 0; begin < tokens; begin += piece) {
    const int64_t count = std::min(piece, tokens - begin);
    route_piece(shape,
                experts.subspan(static_cast<size_t>(begin * k), static_cast<size_t>(count * k)),
                weights + begin * k, k, z + begin * latent, count, u + begin * latent,
                shape.norms == nullptr ? nullptr : shape.norms + begin * k);
  }
}

}  // namespace k3::reference
