// Two loops in one parallel region, each with one writer per output, so there are no sums per
// thread to join:
//   1. over (expert, band): the band's h for every token that visits the expert.
//   2. over blocks of latent outputs: all experts' and bands' terms of those outputs.
// In both, an expert's bytes are read once for all tokens that visit it, in runs of several KiB.
//
// Norms, where wanted, come from the second loop's row sums before weights and rounding touch them:
// squares are added within a block, then over the blocks in order, whoever computed them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "hwy/cache_control.h"
#include "kernels/activation.h"
#include "kernels/expert_visits.h"
#include "kernels/parallel.h"
#include "kernels/routed_experts.h"
#include "kernels/row_products_cpu.h"
#include "schema/error.h"

namespace k3::cpu {
namespace {

constexpr int64_t kTileVisits = 8;
constexpr int64_t kScaleRows = 32;      // whose scales are asked for before a matrix begins
constexpr int64_t kBlockOutputs = 128;  // a block's codes of one band of w2: 16 KiB of mxfp4

// A batch on its way through the experts. Slot t * k + j is token t's j-th choice.
struct Batch {
  const RoutedExpertsShape& shape;
  std::vector<ExpertVisits> groups;
  const float* weights;  // by slot
  int64_t k;
  ActivationBatch latents;       // by token
  std::vector<float> hidden;     // [slot, inner], where the format reads floats
  ActivationBatch hidden_parts;  // [slot, band]
  std::vector<double> squares;   // [block of outputs, slot]: of the outputs; empty without norms

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

// Asks for the scales of rows that nobody asks for ahead: their codes come one by one, but the
// first scales of a matrix lie elsewhere.
void prefetch_scales(const MatrixView& matrix, int64_t row, int64_t rows) {
  for (int64_t at = 0; at < rows * matrix.scales_per_row; at += 64) {
    hwy::Prefetch(matrix.scales + row * matrix.scales_per_row + at);
  }
}

// Then the thread reads `next`, unless it has no codes.
void compute_hidden_band(Batch& batch, const ExpertVisits& group, int64_t band,
                         const MatrixView& next) {
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
        prefetch_scales(w3, 0, kScaleRows);
        row_sums(w1, 0, width, z, gate_sums.data(), read_rows(w1, width, w3.codes));
        if (next.codes != nullptr) prefetch_scales(next, 0, kScaleRows);
        row_sums(w3, 0, width, z, up_sums.data(), read_rows(w3, width, next.codes));
        for (size_t v = 0; v < slots.size(); ++v) {
          const double gate_power = exact_output_power(w1, z[v]->step);
          const double up_power = exact_output_power(w3, z[v]->step);
          for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
            const size_t sum = v * static_cast<size_t>(width) + i;
            const auto row = static_cast<int64_t>(i);
            gate[i] = exact_scaled_output(w1, row, gate_sums[sum], gate_power);
            up[i] = exact_scaled_output(w3, row, up_sums[sum], up_power);
          }
          float* h = batch.hidden.empty() ? gate.data() : batch.hidden_at(slots[v], band);
          glu(glu_rule(shape), gate.data(), up.data(), width, h);
          for (int64_t i = 0; i < width; ++i) h[i] = exact_held_activation(shape.activation, h[i]);
          batch.hidden_parts.set(batch.part_index(slots[v], band), h, width);
        }
      });
}

// Adds a band's part of the outputs of `slots`, [slot, rows], in their own unit.
void add_unweighted(const MatrixView& w2, std::span<const int64_t> slots,
                    std::span<const PreparedVector* const> h, const double* row_sums_of_tile,
                    int64_t rows, std::vector<double>& outputs) {
  for (size_t v = 0; v < slots.size(); ++v) {
    const double power = exact_term_power(w2, h[v]->step, 0);
    double* output = &outputs[static_cast<size_t>(slots[v] * rows)];
    for (int64_t r = 0; r < rows; ++r) {
      output[r] += row_sums_of_tile[static_cast<int64_t>(v) * rows + r] * power;
    }
  }
}

// u[t, begin..end) for all tokens.
void compute_outputs(Batch& batch, int64_t tokens, int64_t begin, int64_t end, float* u) {
  const RoutedExpertsShape& shape = batch.shape;
  const int64_t rows = end - begin;
  std::vector<int64_t> sums(static_cast<size_t>(tokens * rows));
  std::vector<uint8_t> in_range(sums.size(), 1);
  std::vector<double> row_sums_of_tile(static_cast<size_t>(kTileVisits * rows));
  const bool wants_norms = !batch.squares.empty();
  std::vector<double> outputs(static_cast<size_t>(wants_norms ? tokens * batch.k * rows : 0));
  const int64_t bands = shape.place.bands();
  const auto parts = static_cast<int64_t>(batch.groups.size()) * bands;
  const auto part_at = [&](int64_t part) {
    const ExpertVisits& group = batch.groups[static_cast<size_t>(part / bands)];
    return view_expert_part(shape, *group.expert, part % bands, ExpertMatrix::kW2);
  };
  int64_t part = 0;
  for (const ExpertVisits& group : batch.groups) {
    for (int64_t band = 0; band < bands; ++band) {
      const MatrixView w2 = part_at(part);
      ++part;
      const std::byte* next = nullptr;
      if (part < parts) {
        const MatrixView then = part_at(part);
        next = then.codes + begin * then.row_stride_bytes;
        prefetch_scales(then, begin, rows);
      }
      for_each_tile(
          group,
          [&](int64_t slot) -> const PreparedVector& {
            return batch.hidden_parts[batch.part_index(slot, band)];
          },
          [&](std::span<const int64_t> slots, std::span<const PreparedVector* const> h) {
            row_sums(w2, begin, end, h, row_sums_of_tile.data(), read_rows(w2, end, next));
            if (wants_norms) {
              add_unweighted(w2, slots, h, row_sums_of_tile.data(), rows, outputs);
            }
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
  if (!wants_norms) return;
  const int64_t slots = tokens * batch.k;
  double* squares = &batch.squares[static_cast<size_t>(begin / kBlockOutputs * slots)];
  for (int64_t slot = 0; slot < slots; ++slot) {
    for (int64_t r = 0; r < rows; ++r) {
      const double output = outputs[static_cast<size_t>(slot * rows + r)];
      squares[slot] += output * output;
    }
  }
}

// From the blocks' squares to norms [slots].
void finish_norms(const Batch& batch, int64_t slots, float* norms) {
  for (int64_t slot = 0; slot < slots; ++slot) {
    double sum = 0;
    for (size_t at = static_cast<size_t>(slot); at < batch.squares.size();
         at += static_cast<size_t>(slots)) {
      sum += batch.squares[at];
    }
    norms[slot] = static_cast<float>(std::sqrt(sum));
  }
}

}  // namespace

void routed_experts(const RoutedExpertsShape& shape, std::span<const ExpertWeights* const> experts,
                    const float* weights, int64_t k, const float* z, int64_t tokens, float* u) {
  const ExpertBands& place = shape.place;
  const auto slots = static_cast<int64_t>(experts.size());
  const int64_t blocks = divide_up(place.latent, kBlockOutputs);
  K3_CHECK(!lies_in_blocks160(place.format));
  K3_CHECK(slots == tokens * k);
  Batch batch{.shape = shape,
              .groups = group_visits(experts),
              .weights = weights,
              .k = k,
              .latents = ActivationBatch(place.format, tokens, place.latent),
              .hidden = std::vector<float>(
                  static_cast<size_t>(reads_codes(place.format) ? 0 : slots * place.inner)),
              .hidden_parts = ActivationBatch(place.format, slots * place.bands(), kBandInner),
              .squares = std::vector<double>(
                  static_cast<size_t>(shape.norms != nullptr ? blocks * slots : 0))};
  for (int64_t t = 0; t < tokens; ++t) batch.latents.set(t, z + t * place.latent, place.latent);

  const auto groups = static_cast<int64_t>(batch.groups.size());
  const int64_t visits = divide_up(slots, std::max<int64_t>(groups, 1));
  const int64_t band_inner = std::min(place.inner, kBandInner);
  const int64_t rate = reads_codes(place.format) ? 16 : 8;  // multiply-adds of a nanosecond
  const int64_t items = groups * place.bands();
  const auto hidden = [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const auto group = static_cast<size_t>(item / place.bands());
      const int64_t then = item + 1;
      MatrixView next;
      if (then < items) {
        const ExpertWeights* expert =
            batch.groups[static_cast<size_t>(then / place.bands())].expert;
        next = view_expert_part(shape, *expert, then % place.bands(), ExpertMatrix::kW1);
      }
      compute_hidden_band(batch, batch.groups[group], item % place.bands(), next);
    }
  };
  const auto outputs = [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t row = block * kBlockOutputs;
      compute_outputs(batch, tokens, row, std::min(row + kBlockOutputs, place.latent), u);
    }
  };
  parallel_phases(
      Phase<decltype(hidden)>{items, 2 * visits * place.latent * band_inner / rate, hidden},
      Phase<decltype(outputs)>{blocks, kBlockOutputs * slots * place.inner / rate, outputs});
  if (shape.norms != nullptr) finish_norms(batch, slots, shape.norms);
}

}  // namespace k3::cpu
