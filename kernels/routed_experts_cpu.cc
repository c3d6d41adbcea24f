// Two parallel loops, each with one writer per output, so there are no atomics and no sums per
// thread to join:
//   1. over (expert, band): the band's h for every token that visits the expert.
//   2. over blocks of latent outputs: all experts' and bands' terms of those outputs.
// In both, an expert's bytes are read once for all tokens that visit it, in runs of several KiB.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/activation.h"
#include "kernels/expert_visits.h"
#include "kernels/parallel.h"
#include "kernels/routed_experts.h"
#include "kernels/row_products_cpu.h"
#include "schema/error.h"

namespace k3::cpu {
namespace {

constexpr int64_t kTileVisits = 8;
constexpr int64_t kBlockOutputs = 32;  // a block's codes of one band of w2: 4 KiB of mxfp4

// A batch on its way through the experts. Slot t * k + j is token t's j-th choice.
struct Batch {
  const RoutedExpertsShape& shape;
  std::vector<ExpertVisits> groups;
  const float* weights;  // by slot
  int64_t k;
  ActivationBatch latents;       // by token
  std::vector<float> hidden;     // [slot, inner], where the format reads floats
  ActivationBatch hidden_parts;  // [slot, band]

  int64_t part_index(int64_t slot, int64_t band) const { return slot * shape.place.bands() + band; }
  float* hidden_at(int64_t slot, int64_t band) {
    return &hidden[static_cast<size_t>(slot * shape.place.inner + band * kBandInner)];
  }
};

// Calls body(slots, vectors) for the group's slots in tiles, with vector_of(slot) beside each.
template <class VectorOf, class Body>
void for_each_tile(const ExpertVisits& group, const VectorOf& vector_of, const Body& body) {
  std::array<const PreparedVector*, kTileVisits> vectors{};
  const std::span<const int64_t> slots = group.slots;
  for (size_t begin = 0; begin < slots.size(); begin += kTileVisits) {
    const auto tile = slots.subspan(begin, std::min<size_t>(kTileVisits, slots.size() - begin));
    for (size_t v = 0; v < tile.size(); ++v) vectors[v] = &vector_of(tile[v]);
    body(tile, std::span<const PreparedVector* const>(vectors.data(), tile.size()));
  }
}

void compute_hidden_band(Batch& batch, const ExpertVisits& group, int64_t band) {
  const RoutedExpertsShape& shape = batch.shape;
  const MatrixView w1 = view_expert_part(shape, *group.expert, band, ExpertMatrix::kW1);
  const MatrixView w3 = view_expert_part(shape, *group.expert, band, ExpertMatrix::kW3);
  const int64_t width = w1.rows;
  std::array<double, kTileVisits * kBandInner> gate_sums;
  std::array<double, kTileVisits * kBandInner> up_sums;
  std::array<float, kBandInner> gate;
  std::array<float, kBandInner> up;
  for_each_tile(
      group, [&](int64_t slot) -> const PreparedVector& { return batch.latents[slot / batch.k]; },
      [&](std::span<const int64_t> slots, std::span<const PreparedVector* const> z) {
        row_sums(w1, 0, width, z, gate_sums.data());
        row_sums(w3, 0, width, z, up_sums.data());
        for (size_t v = 0; v < slots.size(); ++v) {
          for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
            const size_t sum = v * static_cast<size_t>(width) + i;
            const auto row = static_cast<int64_t>(i);
            gate[i] = exact_output(w1, row, gate_sums[sum], z[v]->step);
            up[i] = exact_output(w3, row, up_sums[sum], z[v]->step);
          }
          float* h = batch.hidden.empty() ? gate.data() : batch.hidden_at(slots[v], band);
          glu(glu_rule(shape), gate.data(), up.data(), width, h);
          for (int64_t i = 0; i < width; ++i) h[i] = exact_held_activation(shape.activation, h[i]);
          batch.hidden_parts.set(batch.part_index(slots[v], band), h, width);
        }
      });
}

// u[t, begin..end) for all tokens.
void compute_outputs(const Batch& batch, int64_t tokens, int64_t begin, int64_t end, float* u) {
  const RoutedExpertsShape& shape = batch.shape;
  const int64_t rows = end - begin;
  std::vector<int64_t> sums(static_cast<size_t>(tokens * rows));
  std::vector<uint8_t> in_range(sums.size(), 1);
  std::vector<double> row_sums_of_tile(static_cast<size_t>(kTileVisits * rows));
  for (const ExpertVisits& group : batch.groups) {
    for (int64_t band = 0; band < shape.place.bands(); ++band) {
      const MatrixView w2 = view_expert_part(shape, *group.expert, band, ExpertMatrix::kW2);
      for_each_tile(
          group,
          [&](int64_t slot) -> const PreparedVector& {
            return batch.hidden_parts[batch.part_index(slot, band)];
          },
          [&](std::span<const int64_t> slots, std::span<const PreparedVector* const> h) {
            row_sums(w2, begin, end, h, row_sums_of_tile.data());
            for (size_t v = 0; v < slots.size(); ++v) {
              const int64_t token = slots[v] / batch.k;
              add_terms(row_sums_of_tile.data() + static_cast<int64_t>(v) * rows, rows,
                        batch.weights[slots[v]],
                        exact_term_power(w2, h[v]->step, shape.fixed_point),
                        sums.data() + token * rows, in_range.data() + token * rows);
            }
          });
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto i = static_cast<size_t>(t * rows + r);
      u[t * shape.place.latent + begin + r] =
          exact_expert_output(sums[i], in_range[i], shape.fixed_point);
    }
  }
}

}  // namespace

void routed_experts(const RoutedExpertsShape& shape, std::span<const ExpertWeights* const> experts,
                    const float* weights, int64_t k, const float* z, int64_t tokens, float* u) {
  const ExpertBands& place = shape.place;
  const auto slots = static_cast<int64_t>(experts.size());
  K3_CHECK(!lies_in_blocks160(place.format));
  K3_CHECK(slots == tokens * k);
  Batch batch{.shape = shape,
              .groups = group_visits(experts),
              .weights = weights,
              .k = k,
              .latents = ActivationBatch(place.format, tokens, place.latent),
              .hidden = std::vector<float>(
                  static_cast<size_t>(reads_codes(place.format) ? 0 : slots * place.inner)),
              .hidden_parts = ActivationBatch(place.format, slots * place.bands(), kBandInner)};
  for (int64_t t = 0; t < tokens; ++t) batch.latents.set(t, z + t * place.latent, place.latent);

  // Costs in parallel_ranges' steps, eight multiply-adds or so each.
  const auto groups = static_cast<int64_t>(batch.groups.size());
  const int64_t visits = divide_up(slots, std::max<int64_t>(groups, 1));
  const int64_t band_inner = std::min(place.inner, kBandInner);
  parallel_ranges(groups * place.bands(), 2 * visits * place.latent * band_inner / 8,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t item = begin; item < end; ++item) {
                      const auto group = static_cast<size_t>(item / place.bands());
                      compute_hidden_band(batch, batch.groups[group], item % place.bands());
                    }
                  });
  parallel_ranges(divide_up(place.latent, kBlockOutputs), kBlockOutputs * slots * place.inner / 8,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t block = begin; block < end; ++block) {
                      const int64_t row = block * kBlockOutputs;
                      compute_outputs(batch, tokens, row,
                                      std::min(row + kBlockOutputs, place.latent), u);
                    }
                  });
}

}  // namespace k3::cpu
