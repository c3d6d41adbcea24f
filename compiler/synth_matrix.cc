#include "compiler/synth_matrix.h"

#include <cmath>

namespace k3 {
namespace {

enum Branch : uint64_t { kBulk, kLeft, kRight, kRowGains, kColumnGains, kOutliers };

std::vector<float> make_column_gains(const RandomStream& stream, int64_t cols,
                                     const MatrixCharacter& character) {
  const RandomStream spread = stream.branch(kColumnGains);
  const RandomStream outliers = stream.branch(kOutliers);
  std::vector<float> gains(static_cast<size_t>(cols));
  double sum_of_squares = 0;
  for (size_t j = 0; j < gains.size(); ++j) {
    const float root = 1.0f + character.column_spread * spread.bell(j);
    gains[j] = root * root;
    if (character.outlier_columns > 0 && outliers.below(j, character.outlier_columns) == 0) {
      gains[j] *= character.outlier_gain;
    }
    sum_of_squares += static_cast<double>(gains[j]) * gains[j];
  }
  const auto norm = static_cast<float>(std::sqrt(static_cast<double>(cols) / sum_of_squares));
  for (float& gain : gains) gain *= norm;
  return gains;
}

// Their squares fall as 1 / r and add up to `share`.
std::vector<float> make_strengths(int64_t rank, float share) {
  double harmonic = 0;
  for (int64_t r = 1; r <= rank; ++r) harmonic += 1.0 / static_cast<double>(r);
  std::vector<float> strengths;
  for (int64_t r = 1; r <= rank; ++r) {
    strengths.push_back(static_cast<float>(std::sqrt(share / (harmonic * static_cast<double>(r)))));
  }
  return strengths;
}

}  // namespace

SynthMatrix::SynthMatrix(const RandomStream& stream, int64_t cols, float scale,
                         const MatrixCharacter& character)
    : bulk_(stream.branch(kBulk)),
      left_(stream.branch(kLeft)),
      row_gains_(stream.branch(kRowGains)),
      cols_(cols),
      scale_(scale),
      bulk_share_(character.rank > 0 ? std::sqrt(1.0f - character.strong_share) : 1.0f),
      row_spread_(character.row_spread),
      column_gains_(make_column_gains(stream, cols, character)),
      strengths_(make_strengths(character.rank, character.strong_share)),
      right_(static_cast<size_t>(character.rank * cols)) {
  const RandomStream right = stream.branch(kRight);
  for (size_t i = 0; i < right_.size(); ++i) right_[i] = right.bell(i);
}

void SynthMatrix::make_row(int64_t row, std::span<float> out) const {
  const auto first = static_cast<uint64_t>(row) * static_cast<uint64_t>(cols_);
  for (size_t j = 0; j < out.size(); ++j) out[j] = bulk_share_ * bulk_.bell(first + j);
  for (size_t r = 0; r < strengths_.size(); ++r) {
    const uint64_t number = static_cast<uint64_t>(row) * strengths_.size() + r;
    const float strength = strengths_[r] * left_.bell(number);
    const float* direction = right_.data() + r * out.size();
    for (size_t j = 0; j < out.size(); ++j) out[j] += strength * direction[j];
  }
  const float row_gain = 1.0f + row_spread_ * row_gains_.bell(static_cast<uint64_t>(row));
  for (size_t j = 0; j < out.size(); ++j) out[j] *= scale_ * row_gain * column_gains_[j];
}

}  // namespace k3
