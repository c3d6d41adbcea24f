// With all else fixed a row's loss is a parabola in the value of weight j: slope 2 q_j, curvature
// 2 h_j, h_j = H_jj + r. Its bottom is at v_j - q_j / h_j, and the best level is the one nearest to
// that.
//
// A step changes the slopes of all inputs, but the next steps look only at those of their own group
// of 160. So a group is settled with its own piece of H, row by row, several times over since that
// is cheap. What the other groups did since the last visit reaches its slopes when it is visited
// again, and not before: then the slopes of a group are written once a sweep and stay in the cache
// while the changes of all others, which after the first sweeps are few, are added to them.
#include "passes/coordinate_descent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "passes/listed_factor.h"
#include "schema/mix_bits.h"

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

// Four uniform numbers of 16 bits add up to what is Gaussian enough: mean 0, variance 1.
float noise_of(uint64_t counter) {
  const uint64_t bits = split_mix(counter, 0);
  const auto sum = static_cast<int64_t>((bits & 0xffffU) + (bits >> 16 & 0xffffU) +
                                        (bits >> 32 & 0xffffU) + (bits >> 48));
  constexpr float kDeviation = 37836.98F;  // sqrt(4 (2^32 - 1) / 12)
  return static_cast<float>(sum - 131070) / kDeviation;
}

// Sweeps over a block's groups; between visits a group's slopes wait for the changes of the others.
class Sweeper {
 public:
  Sweeper(RowBlock& block, const Loss& loss)
      : block_(block),
        loss_(loss),
        changes_(static_cast<size_t>(block.groups)),
        values_(static_cast<size_t>(block.rows) * kGroup) {}

  // Visits all groups in order: calls visit(row, group_row) for every row that has a scale there.
  template <class Visit>
  void sweep(const Visit& visit) {
    for (int64_t group = 0; group < block_.groups; ++group) {
      // Of those behind it the last sweep's changes, of those before it this one's.
      for (int64_t other = group + 1; other < block_.groups; ++other) follow(group, other);
      for (int64_t other = 0; other < group; ++other) follow(group, other);
      visit_group(group, visit);
    }
  }

  // Makes all slopes true after the last sweep.
  void finish() {
    for (int64_t group = 0; group < block_.groups; ++group) {
      for (int64_t other = group + 1; other < block_.groups; ++other) follow(group, other);
    }
  }

  double multiplications() const { return multiplications_; }

 private:
  // Adds what `other` changed at its last visit to the slopes of `group`.
  void follow(int64_t group, int64_t other) {
    const ListedFactor& change = changes_[static_cast<size_t>(other)];
    if (change.empty()) return;
    const int64_t begin = block_.group_begin(group);
    const float* const part = loss_.gram.data() + block_.group_begin(other) * block_.cols + begin;
    multiplications_ += change.add_product_with(block_.group_size(group), {part, block_.cols},
                                                block_.slopes.data() + begin, block_.stride);
  }

  template <class Visit>
  void visit_group(int64_t group, const Visit& visit) {
    piece_.load(block_, loss_, group);
    const int64_t begin = block_.group_begin(group);
    std::fill(values_.begin(), values_.end(), 0.0F);
    std::array<int8_t, kGroup> before;
    for (int64_t r = 0; r < block_.rows; ++r) {
      const float scale = block_.scale_row(r)[group];
      if (!(scale > 0)) continue;
      GroupRow row{piece_, scale, 1 / scale, block_.largest_code, block_.code_row(r) + begin, {}};
      std::copy_n(row.codes, piece_.size, before.begin());
      std::copy_n(block_.slope_row(r) + begin, piece_.size, row.slopes.begin());
      visit(r, row);
      std::copy_n(row.slopes.begin(), piece_.size, block_.slope_row(r) + begin);
      float* const value = values_.data() + static_cast<size_t>(r) * kGroup;
      for (size_t j = 0; j < static_cast<size_t>(piece_.size); ++j) {
        value[j] = scale * static_cast<float>(row.codes[j] - before[j]);
      }
    }
    changes_[static_cast<size_t>(group)] =
        ListedFactor(block_.rows, piece_.size, {values_.data(), kBlockInputs});
  }

  RowBlock& block_;
  const Loss& loss_;
  Piece piece_;
  std::vector<ListedFactor> changes_;  // by group, at its last visit
  std::vector<float> values_;          // [rows, 160], scratch
  double multiplications_ = 0;
};

int64_t differences(const int8_t* a, const int8_t* b, int64_t count) {
  int64_t different = 0;
  for (int64_t i = 0; i < count; ++i) different += a[i] != b[i] ? 1 : 0;
  return different;
}

}  // namespace

DescentWork descend_codes(RowBlock& block, const Loss& loss, const DescentLimits& limits) {
  const double settled = limits.settled_share * static_cast<double>(block.cols);
  std::vector<char> active(static_cast<size_t>(block.rows), 1);
  Sweeper sweeper(block, loss);
  DescentWork work;
  while (work.sweeps < limits.most_sweeps &&
         std::find(active.begin(), active.end(), 1) != active.end()) {
    ++work.sweeps;
    const std::vector<int8_t> before = block.codes;
    sweeper.sweep([&](int64_t r, GroupRow& row) {
      if (active[static_cast<size_t>(r)] == 0) return;
      for (int64_t pass = 0; pass < kMostPasses && descend_group(row); ++pass) continue;
    });
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t changed =
          differences(block.code_row(r), before.data() + r * block.cols, block.cols);
      if (static_cast<double>(changed) <= settled) active[static_cast<size_t>(r)] = 0;
    }
  }
  sweeper.finish();
  work.multiplications = sweeper.multiplications();
  return work;
}

DescentWork anneal_codes(RowBlock& block, const Loss& loss, int64_t first_row, int64_t sweeps,
                         double heat) {
  std::vector<double> temperatures;
  for (int64_t r = 0; r < block.rows; ++r) {
    temperatures.push_back(heat * std::max(0.0, row_loss(block, r)) /
                           static_cast<double>(block.cols));
  }
  Sweeper sweeper(block, loss);
  DescentWork work;
  for (; work.sweeps < sweeps; ++work.sweeps) {
    const double left = static_cast<double>(sweeps - work.sweeps) / static_cast<double>(sweeps);
    sweeper.sweep([&](int64_t r, GroupRow& row) {
      const auto temperature = static_cast<float>(temperatures[static_cast<size_t>(r)] * left);
      const float amplitude = std::sqrt(0.5F * temperature) * row.inverse_scale;
      const auto line = static_cast<uint64_t>((first_row + r) * sweeps + work.sweeps);
      const uint64_t key =
          split_mix(line, 0) + static_cast<uint64_t>(row.codes - block.code_row(r));
      for (size_t j = 0; j < static_cast<size_t>(row.piece.size); ++j) {
        if (row.piece.inverse[j] == 0) continue;
        const float noise = amplitude * row.piece.spread[j] * noise_of(key + j);
        const int code = row.best_code(j, noise);
        if (code != row.codes[j]) row.step(j, code);
      }
    });
  }
  sweeper.finish();
  work.multiplications = sweeper.multiplications();
  return work;
}

}  // namespace k3
