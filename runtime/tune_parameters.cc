#include "runtime/tune_parameters.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "kernels/decode_rows.h"
#include "runtime/comparable_packs.h"
#include "runtime/named_matrix.h"
#include "schema/block_codes.h"
#include "schema/error.h"

namespace k3 {
namespace {

constexpr float kFirstDecay = 0.9F;
constexpr float kSecondDecay = 0.99F;  // a hundred steps or so are all there are
constexpr float kLeastRoot = 1e-8F;
constexpr uint64_t kShuffleSeed = 3;
constexpr float kLean = 0.7F;
constexpr float kMostLean = 0.35F;  // of 0.5, where a code changes

// Adam's state of some numbers of one kind.
class Moments {
 public:
  // Each number moves in its unit and stays within the limits.
  Moments(std::vector<float> units, float least, float largest)
      : units_(std::move(units)),
        least_(least),
        largest_(largest),
        first_(units_.size()),
        second_(units_.size()) {}

  // `step` counts from 1. Zeroes the gradients. False, and values that are worth nothing, when one
  // of them is not finite.
  [[nodiscard]] bool apply(std::span<float> values, std::span<float> gradients, int64_t step,
                           double rate) {
    const double first_share = 1 - std::pow(double{kFirstDecay}, static_cast<double>(step));
    const double second_share = 1 - std::pow(double{kSecondDecay}, static_cast<double>(step));
    const auto of_first = static_cast<float>(rate / first_share);
    const auto of_second = static_cast<float>(1 / second_share);
    std::atomic<bool> all_finite = true;
    tbb::parallel_for(tbb::blocked_range<size_t>(0, units_.size()), [&](const auto& range) {
      bool finite = true;
      for (size_t i = range.begin(); i < range.end(); ++i) {
        const float g = gradients[i] * units_[i];
        finite = finite && std::isfinite(g);
        first_[i] = kFirstDecay * first_[i] + (1 - kFirstDecay) * g;
        second_[i] = kSecondDecay * second_[i] + (1 - kSecondDecay) * g * g;
        const float change =
            of_first * first_[i] / (std::sqrt(of_second * second_[i]) + kLeastRoot);
        values[i] = std::clamp(values[i] - change * units_[i], least_, largest_);
        gradients[i] = 0;
      }
      if (!finite) all_finite = false;
    });
    return all_finite;
  }

 private:
  std::vector<float> units_;
  float least_, largest_;
  std::vector<float> first_, second_;
};

// A scale moves in units of its size, so that rows of different sizes change alike; a gain in the
// typical size of its norm's.
Moments moments_of_values(const TunedParameter& parameter) {
  constexpr float kNoLimit = std::numeric_limits<float>::max();
  const std::vector<float>& values = parameter.values;
  if (parameter.rows > 0) return {values, 0, kNoLimit};
  double squares = 0;
  for (float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  const double typical = std::sqrt(squares / static_cast<double>(values.size()));
  return {std::vector<float>(values.size(), static_cast<float>(typical)), -kNoLimit, kNoLimit};
}

// What a code is rounded from stays where a step or two can bring it back.
Moments moments_of_latents(const TunedParameter& parameter) {
  const std::vector<float> units(parameter.latents.size(), 1);
  if (units.empty()) return {units, 0, 0};
  const auto limit = static_cast<float>(largest_code(parameter.format)) + 0.5F;
  return {units, -limit, limit};
}

// Windows in an order that changes with every round.
class WindowOrder {
 public:
  explicit WindowOrder(Windows windows) : windows_(windows), order_(windows.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    at_ = order_.size();
  }

  // Windows of `tokens` tokens together, or one.
  std::vector<std::vector<int32_t>> next(int64_t tokens) {
    std::vector<std::vector<int32_t>> taken;
    for (int64_t sum = 0;;) {
      if (at_ == order_.size()) shuffle();
      const std::vector<int32_t>& window = windows_[order_[at_]];
      sum += std::ssize(window);
      if (!taken.empty() && sum > tokens) return taken;
      taken.push_back(window);
      ++at_;
    }
  }

 private:
  // std::shuffle differs from library to library.
  void shuffle() {
    for (size_t i = order_.size() - 1; i > 0; --i)
      std::swap(order_[i], order_[random_() % (i + 1)]);
    at_ = 0;
  }

  Windows windows_;
  std::vector<size_t> order_;
  size_t at_ = 0;
  std::mt19937_64 random_{kShuffleSeed};
};

// What a step that changed too much or a tuning to start from can come to. A stream that is not
// finite ends the forward pass; finite streams may still give logits and gradients that are not.
template <class... Parts>
[[noreturn]] void fail_as_not_finite(const Parts&... found) {
  throw Error(found..., ", expected a finite number; lower rates change the model less");
}

}  // namespace

void lean_codes(ModelGradient& student, LayerwiseModel& teacher) {
  check_same_basis(student.model().pack(), teacher.pack());
  std::vector<float> weights;
  for (int64_t layer = 0; layer < teacher.layers(); ++layer) {
    teacher.hold_layer(layer);
    for (TunedParameter& parameter : student.parameters()) {
      if (parameter.layer != layer || parameter.latents.empty()) continue;
      const MatrixView& view = *find_matrix(teacher.weights(), parameter.name).view;
      const int64_t blocks = std::ssize(parameter.values) / parameter.rows;
      weights.resize(static_cast<size_t>(parameter.cols));
      for (int64_t row = 0; row < parameter.rows; ++row) {
        decode_rows(view, row, 1, weights.data());
        for (int64_t col = 0; col < parameter.cols; ++col) {
          const float scale =
              parameter.values[static_cast<size_t>(row * blocks + col / kBlockInputs)];
          float& latent = parameter.latents[static_cast<size_t>(row * parameter.cols + col)];
          if (scale <= 0) continue;
          const float away = weights[static_cast<size_t>(col)] / scale - latent;
          latent += std::clamp(kLean * away, -kMostLean, kMostLean);
        }
      }
    }
  }
  teacher.hold_nothing();
}

void tune_parameters(ModelGradient& student, LayerwiseModel& teacher, Windows windows,
                     const TuneSchedule& schedule,
                     const std::function<void(const TuneStep&)>& on_step) {
  std::vector<Moments> of_values;
  std::vector<Moments> of_latents;
  for (const TunedParameter& parameter : student.parameters()) {
    of_values.push_back(moments_of_values(parameter));
    of_latents.push_back(moments_of_latents(parameter));
  }
  WindowOrder order(windows);
  for (int64_t step = 1; step <= schedule.steps; ++step) {
    const std::vector<std::vector<int32_t>> batch = order.next(schedule.step_tokens);
    TeacherLoss loss(teacher, batch);
    const double sum = student.add_gradient(batch, std::ref(loss));
    if (!std::isfinite(sum)) fail_as_not_finite("step ", step, ": KL is ", sum);
    const double done = static_cast<double>(step - 1) / static_cast<double>(schedule.steps);
    const double share = 0.5 * (1 + std::cos(std::numbers::pi * done));
    for (size_t i = 0; i < of_values.size(); ++i) {
      TunedParameter& parameter = student.parameters()[i];
      const bool finite = of_values[i].apply(parameter.values, parameter.gradients, step,
                                             share * schedule.learning_rate) &&
                          of_latents[i].apply(parameter.latents, parameter.latent_gradients, step,
                                              share * schedule.code_rate);
      if (!finite) {
        fail_as_not_finite("step ", step, ": tensor ", parameter.name,
                           ": has a gradient that is none");
      }
    }
    on_step({.step = step, .kl = sum / static_cast<double>(loss.tokens())});
  }
}

double mean_divergence(ModelGradient& student, TeacherLoss& loss) {
  const double sum = student.measure(loss.windows(), std::ref(loss));
  if (!std::isfinite(sum)) fail_as_not_finite("KL is ", sum);
  return sum / static_cast<double>(loss.tokens());
}

}  // namespace k3
