// With all else fixed a row's loss is a parabola in the value of weight j: slope 2 q_j, curvature
// 2 h_j, h_j = H_jj + r. Its bottom is at v_j - q_j / h_j, and the best level is the one nearest to
// that.
//
// A step changes the slopes of all inputs, but the next steps look only at those of their own group
// of 160. So a group is settled with its own piece of H, row by row, several times over since that
// is cheap, and what it did reaches the other slopes as one product. After the first sweeps few
// codes change, and that product is sparse.
#include "passes/coordinate_descent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace k3 {
namespace {

constexpr auto kGroup = static_cast<size_t>(kBlockInputs);

// A step must gain this share of what moving one level costs at the bottom of the parabola: less
// is rounding of the slopes, and taking it could go round in circles.
constexpr float kLeastGain = 1e-6F;
constexpr int64_t kMostPasses = 8;  // over one group before the others see its changes

// A group's own piece of H + r I.
struct Piece {
  int64_t size = 0;
  std::vector<float> loss = std::vector<float>(kGroup * kGroup);  // [size, 160]
  // 1 / h_j; 0 where an input is always 0, so that its code stays.
  std::array<float, kGroup> inverse = {};
  std::array<float, kGroup> spread = {};  // sqrt of that

  void load(const RowBlock& block, const Loss& whole, int64_t group) {
    const int64_t begin = block.group_begin(group);
    size = block.group_size(group);
    for (int64_t i = 0; i < size; ++i) {
      const auto at = static_cast<size_t>(i);
      float* const line = loss.data() + at * kGroup;
      std::copy_n(whole.gram.data() + (begin + i) * whole.cols + begin, size, line);
      line[i] += whole.ridge;
      inverse[at] = line[i] > 0 ? 1 / line[i] : 0.0F;
      spread[at] = std::sqrt(inverse[at]);
    }
  }
};

// One group of one row, with a copy of its slopes that follows the steps.
struct GroupRow {
  const Piece& piece;
  float scale;
  float inverse_scale;
  int largest_code;
  int8_t* codes;
  std::array<float, kGroup> slopes;

  // The best level, in units of the scale and off by `noise` of these.
  int best_code(size_t j, float noise) const {
    const float best =
        static_cast<float>(codes[j]) - slopes[j] * piece.inverse[j] * inverse_scale + noise;
    const float magnitude = std::fabs(best) + 0.5F;
    const int code =
        magnitude < static_cast<float>(largest_code) ? static_cast<int>(magnitude) : largest_code;
    return best < 0 ? -code : code;
  }
  void step(size_t j, int code) {
    const float change = scale * static_cast<float>(code - codes[j]);
    codes[j] = static_cast<int8_t>(code);
    const float* const line = piece.loss.data() + j * kGroup;
    for (size_t k = 0; k < kGroup; ++k) slopes[k] += change * line[k];
  }
};

// One pass; returns whether it changed a code.
bool descend_group(GroupRow& row) {
  bool changed = false;
  const float least = kLeastGain * row.scale * row.scale;
  for (size_t j = 0; j < static_cast<size_t>(row.piece.size); ++j) {
    const int code = row.best_code(j, 0.0F);
    if (code == row.codes[j]) continue;
    const float curvature = row.piece.loss[j * kGroup + j];
    const float change = row.scale * static_cast<float>(code - row.codes[j]);
    const float gain = -change * (2 * row.slopes[j] + change * curvature);
    if (!(gain > least * curvature)) continue;
    row.step(j, code);
    changed = true;
  }
  return changed;
}

// A number without pattern for every counter (the finalizer of SplitMix64).
uint64_t scramble(uint64_t counter) {
  counter += 0x9e3779b97f4a7c15U;
  counter = (counter ^ (counter >> 30)) * 0xbf58476d1ce4e5b9U;
  counter = (counter ^ (counter >> 27)) * 0x94d049bb133111ebU;
  return counter ^ (counter >> 31);
}

// Four uniform numbers of 16 bits add up to what is Gaussian enough: mean 0, variance 1.
float noise_of(uint64_t counter) {
  const uint64_t bits = scramble(counter);
  const auto sum = static_cast<int64_t>((bits & 0xffffU) + (bits >> 16 & 0xffffU) +
                                        (bits >> 32 & 0xffffU) + (bits >> 48));
  constexpr float kDeviation = 37836.98F;  // sqrt(4 (2^32 - 1) / 12)
  return static_cast<float>(sum - 131070) / kDeviation;
}

// Calls visit(row, group_row) for one group of every row that has a scale there, and lets all
// slopes follow. `visit` sees the codes before and after and returns nothing.
template <class Visit>
double visit_group(RowBlock& block, const Loss& loss, int64_t group, Piece& piece,
                   const Visit& visit) {
  piece.load(block, loss, group);
  const int64_t begin = block.group_begin(group);
  std::vector<float> changes(static_cast<size_t>(block.rows) * kGroup);
  std::array<int8_t, kGroup> before;
  for (int64_t r = 0; r < block.rows; ++r) {
    const float scale = block.scale_row(r)[group];
    if (!(scale > 0)) continue;
    GroupRow row{piece, scale, 1 / scale, block.largest_code, block.code_row(r) + begin, {}};
    std::copy_n(row.codes, piece.size, before.begin());
    std::copy_n(block.slope_row(r) + begin, piece.size, row.slopes.begin());
    visit(r, row);
    float* const change = changes.data() + static_cast<size_t>(r) * kGroup;
    for (size_t j = 0; j < static_cast<size_t>(piece.size); ++j) {
      change[j] = scale * static_cast<float>(row.codes[j] - before[j]);
    }
  }
  return add_changes(block, loss, group, changes);
}

int64_t differences(const int8_t* a, const int8_t* b, int64_t count) {
  int64_t different = 0;
  for (int64_t i = 0; i < count; ++i) different += a[i] != b[i] ? 1 : 0;
  return different;
}

}  // namespace

DescentWork descend_codes(RowBlock& block, const Loss& loss, const DescentLimits& limits) {
  const double settled = limits.settled_share * static_cast<double>(block.cols);
  std::vector<char> active(static_cast<size_t>(block.rows), 1);
  Piece piece;
  DescentWork work;
  while (work.sweeps < limits.most_sweeps &&
         std::find(active.begin(), active.end(), 1) != active.end()) {
    ++work.sweeps;
    const std::vector<int8_t> before = block.codes;
    for (int64_t group = 0; group < block.groups; ++group) {
      work.multiplications += visit_group(block, loss, group, piece, [&](int64_t r, GroupRow& row) {
        if (active[static_cast<size_t>(r)] == 0) return;
        for (int64_t pass = 0; pass < kMostPasses && descend_group(row); ++pass) continue;
      });
    }
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t changed =
          differences(block.code_row(r), before.data() + r * block.cols, block.cols);
      if (static_cast<double>(changed) <= settled) active[static_cast<size_t>(r)] = 0;
    }
  }
  return work;
}

DescentWork anneal_codes(RowBlock& block, const Loss& loss, int64_t first_row, int64_t sweeps,
                         double heat) {
  std::vector<double> temperatures;
  for (int64_t r = 0; r < block.rows; ++r) {
    temperatures.push_back(heat * std::max(0.0, row_loss(block, r)) /
                           static_cast<double>(block.cols));
  }
  Piece piece;
  DescentWork work;
  for (; work.sweeps < sweeps; ++work.sweeps) {
    const double left = static_cast<double>(sweeps - work.sweeps) / static_cast<double>(sweeps);
    for (int64_t group = 0; group < block.groups; ++group) {
      work.multiplications += visit_group(block, loss, group, piece, [&](int64_t r, GroupRow& row) {
        const auto temperature = static_cast<float>(temperatures[static_cast<size_t>(r)] * left);
        const float amplitude = std::sqrt(0.5F * temperature) * row.inverse_scale;
        const auto line = static_cast<uint64_t>((first_row + r) * sweeps + work.sweeps);
        const uint64_t key = scramble(line) + static_cast<uint64_t>(block.group_begin(group));
        for (size_t j = 0; j < static_cast<size_t>(piece.size); ++j) {
          if (piece.inverse[j] == 0) continue;
          const int code = row.best_code(j, amplitude * piece.spread[j] * noise_of(key + j));
          if (code != row.codes[j]) row.step(j, code);
        }
      });
    }
  }
  return work;
}

}  // namespace k3
