// Latent weights start inside the cells of the codes that descent found, as near to the weights as
// these cells allow, so that training starts where descent ended. The gradient with respect to a
// value is 2 Q; Adam (arXiv 1412.6980) makes the 2 and the size of H immaterial. Scales are free,
// not tied to the latent weights: a tie would move all codes of a group at once.
//
// Rates fall linearly: what a library's cosine gives in its last bit is not the same everywhere.
#include "passes/straight_through.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace k3 {
namespace {

constexpr float kDecayFirst = 0.9F;
constexpr float kDecaySecond = 0.999F;
constexpr float kTiny = 1e-12F;  // beside a gradient that is divided by its row's size first

// Adam's memory of an array of parameters.
struct Moments {
  std::vector<float> first;
  std::vector<float> second;

  explicit Moments(size_t count) : first(count), second(count) {}

  // The step of a parameter for a rate of 1.
  float step(size_t i, float gradient, float first_bias, float second_bias) {
    first[i] = kDecayFirst * first[i] + (1 - kDecayFirst) * gradient;
    second[i] = kDecaySecond * second[i] + (1 - kDecaySecond) * gradient * gradient;
    return first[i] / first_bias / (std::sqrt(second[i] / second_bias) + kTiny);
  }
};

float latent_weight(float weight, int code, float scale, int largest_code) {
  constexpr float kHalf = 0.45F;  // at the border itself the first steps would change most codes
  const float centre = scale * static_cast<float>(code);
  const float low = code == -largest_code ? -INFINITY : centre - kHalf * scale;
  const float high = code == largest_code ? INFINITY : centre + kHalf * scale;
  return std::fmin(std::fmax(weight, low), high);
}

// What does not change while a row is trained.
struct RowRates {
  float gradient = 0;  // brings the row's slopes to a size of about 1
  float latent = 0;
};

std::vector<RowRates> row_rates(const RowBlock& block, double latent_rate) {
  std::vector<RowRates> rates;
  for (int64_t r = 0; r < block.rows; ++r) {
    double squares = 0;
    double slopes = 0;
    for (int64_t col = 0; col < block.cols; ++col) {
      const double weight = block.weight_row(r)[col];
      const double slope = block.slope_row(r)[col];
      squares += weight * weight;
      slopes += slope * slope;
    }
    const auto count = static_cast<double>(block.cols);
    rates.push_back({slopes > 0 ? static_cast<float>(1 / std::sqrt(slopes / count)) : 0.0F,
                     static_cast<float>(latent_rate * std::sqrt(squares / count))});
  }
  return rates;
}

}  // namespace

double train_straight_through(RowBlock& block, const Loss& loss, const SolverOptions& options) {
  RowBlock best = block;
  std::vector<double> least;
  for (int64_t r = 0; r < block.rows; ++r) least.push_back(row_loss(block, r));
  const std::vector<RowRates> rates = row_rates(block, options.latent_rate);
  std::vector<float> latent(block.codes.size());
  for (int64_t r = 0; r < block.rows; ++r) {
    for (int64_t col = 0; col < block.cols; ++col) {
      latent[static_cast<size_t>(r * block.cols + col)] =
          latent_weight(block.weight_row(r)[col], block.code_row(r)[col],
                        block.scale_row(r)[col / kBlockInputs], block.largest_code);
    }
  }
  Moments latent_moments(latent.size());
  Moments scale_moments(block.scales.size());
  float first_power = 1;
  float second_power = 1;
  double multiplications = 0;
  for (int64_t step = 0; step < options.training_steps; ++step) {
    first_power *= kDecayFirst;
    second_power *= kDecaySecond;
    const auto left = static_cast<float>(options.training_steps - step) /
                      static_cast<float>(options.training_steps);
    for (int64_t r = 0; r < block.rows; ++r) {
      const RowRates& rate = rates[static_cast<size_t>(r)];
      for (int64_t group = 0; group < block.groups; ++group) {
        float& scale = block.scale_row(r)[group];
        if (!(scale > 0)) continue;
        const int64_t begin = block.group_begin(group);
        const int64_t size = block.group_size(group);
        float scale_gradient = 0;
        for (int64_t col = begin; col < begin + size; ++col) {
          const float gradient = rate.gradient * block.slope_row(r)[col];
          scale_gradient += gradient * static_cast<float>(block.code_row(r)[col]);
          const auto at = static_cast<size_t>(r * block.cols + col);
          latent[at] -= left * rate.latent *
                        latent_moments.step(at, gradient, 1 - first_power, 1 - second_power);
        }
        const float move = scale_moments.step(static_cast<size_t>(r * block.groups + group),
                                              scale_gradient, 1 - first_power, 1 - second_power);
        scale -= left * static_cast<float>(options.scale_rate) * scale * move;
        for (int64_t col = begin; col < begin + size; ++col) {
          block.code_row(r)[col] = nearest_code(latent[static_cast<size_t>(r * block.cols + col)],
                                                scale, block.largest_code);
        }
      }
    }
    multiplications += refresh_slopes(block, loss);
    for (int64_t r = 0; r < block.rows; ++r) {
      const double now = row_loss(block, r);
      if (!(now < least[static_cast<size_t>(r)])) continue;
      least[static_cast<size_t>(r)] = now;
      std::copy_n(block.code_row(r), block.cols, best.code_row(r));
      std::copy_n(block.scale_row(r), block.groups, best.scale_row(r));
      std::copy_n(block.slope_row(r), block.cols, best.slope_row(r));
    }
  }
  block = std::move(best);
  return multiplications;
}

}  // namespace k3
