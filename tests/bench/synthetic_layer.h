// A layer of which everything is known: Gaussian weights, and inputs of a given spectrum whose true
// Gram matrix stands beside the sampled ones. What a solver reaches on it can be compared with what
// any code could.
#pragma once

#include <cstdint>
#include <vector>

namespace k3 {

struct SyntheticShape {
  int64_t rows = 256;
  int64_t cols = 1024;  // a power of two
  double alpha = 0;     // eigenvalue i of the inputs is i^-alpha, in a random orthogonal basis
  // Each input times a log-normal gain (deviation 0.5 of its logarithm), a hundredth of them ten
  // times that.
  bool outlier_channels = false;
  // Weights and inputs rotated by a Hadamard matrix, which leaves the output as it is.
  bool rotated = false;
  uint64_t seed = 1;
};

struct SyntheticLayer {
  std::vector<float> weights;      // [rows, cols]
  std::vector<float> true_gram;    // [cols, cols], E[x x^T]
  std::vector<float> fit_gram;     // the mean over 16 cols samples
  std::vector<float> select_gram;  // over 8 cols others
};

SyntheticLayer make_layer(const SyntheticShape& shape);

// Multiplies every `block` consecutive floats by the orthogonal Hadamard matrix of that size, a
// power of two that divides the length of a row.
void rotate_rows(std::vector<float>& rows, int64_t block);

// A Gram matrix [cols, cols] of spectrum i^-1 in a basis of two such rotations with signs, made in
// O(cols^2 log cols) where a random basis would take as long as the solver. cols is a multiple of
// 1024.
std::vector<float> mixed_gram(int64_t cols, uint64_t seed);

}  // namespace k3
