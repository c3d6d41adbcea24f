#include "passes/water_filling.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "schema/error.h"

namespace k3 {
namespace {

double total(std::span<const double> spectrum) {
  return std::accumulate(spectrum.begin(), spectrum.end(), 0.0);
}

struct Filling {
  double bits = 0;    // a weight
  double energy = 0;  // lost
};

Filling fill(std::span<const double> spectrum, double level) {
  Filling filling;
  for (const double value : spectrum) {
    if (value > level) filling.bits += 0.5 * std::log2(value / level);
    filling.energy += std::min(value, level);
  }
  if (!spectrum.empty()) filling.bits /= static_cast<double>(spectrum.size());
  return filling;
}

// The water level at which `too_high(level)` turns true, between the smallest double and the
// largest eigenvalue; bisected in the logarithm, since levels span many orders of magnitude.
template <class TooHigh>
double find_level(std::span<const double> spectrum, const TooHigh& too_high) {
  double low = std::log(std::numeric_limits<double>::min());
  double high = std::log(*std::max_element(spectrum.begin(), spectrum.end()));
  for (int i = 0; i < 200; ++i) {
    const double middle = 0.5 * (low + high);
    (too_high(std::exp(middle)) ? high : low) = middle;
  }
  return std::exp(0.5 * (low + high));
}

}  // namespace

std::vector<double> gram_spectrum(std::span<const float> gram, int64_t dim) {
  K3_CHECK(gram.size() == static_cast<size_t>(dim * dim));
  std::vector<int64_t> active;
  for (int64_t i = 0; i < dim; ++i) {
    if (gram[static_cast<size_t>(i * dim + i)] > 0) active.push_back(i);
  }
  if (active.empty()) return {};
  const auto size = static_cast<Eigen::Index>(active.size());
  Eigen::MatrixXd matrix(size, size);
  for (Eigen::Index j = 0; j < size; ++j) {
    for (Eigen::Index i = 0; i < size; ++i) {
      matrix(i, j) = gram[static_cast<size_t>(active[static_cast<size_t>(i)] * dim +
                                              active[static_cast<size_t>(j)])];
    }
  }
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(matrix, Eigen::EigenvaluesOnly);
  if (solver.info() != Eigen::Success) {
    throw Error("Gram matrix: its eigenvalues did not converge, expected finite elements");
  }
  std::vector<double> spectrum;
  for (const double value : solver.eigenvalues()) spectrum.push_back(std::max(0.0, value));
  return spectrum;
}

double least_error(std::span<const double> spectrum, double bits) {
  const double energy = total(spectrum);
  if (!(energy > 0)) return 0;
  if (!(bits > 0)) return 1;
  const double level =
      find_level(spectrum, [&](double t) { return fill(spectrum, t).bits < bits; });
  return std::sqrt(fill(spectrum, level).energy / energy);
}

double least_bits(std::span<const double> spectrum, double error) {
  const double energy = total(spectrum);
  if (!(energy > 0) || error >= 1) return 0;
  if (!(error > 0)) return std::numeric_limits<double>::infinity();
  const double level = find_level(
      spectrum, [&](double t) { return fill(spectrum, t).energy > error * error * energy; });
  return fill(spectrum, level).bits;
}

double spectral_flatness(std::span<const double> spectrum) {
  const double energy = total(spectrum);
  if (!(energy > 0)) return 0;
  double logs = 0;
  for (const double value : spectrum) {
    if (!(value > 0)) return 0;
    logs += std::log(value);
  }
  const auto count = static_cast<double>(spectrum.size());
  return std::sqrt(std::exp(logs / count) / (energy / count));
}

}  // namespace k3
