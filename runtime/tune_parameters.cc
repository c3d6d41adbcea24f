#include "runtime/tune_parameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

#include "runtime/teacher_loss.h"

namespace k3 {
namespace {

constexpr double kFirstDecay = 0.9;
constexpr double kSecondDecay = 0.99;  // a hundred steps or so are all there are
constexpr double kLeastRoot = 1e-8;
constexpr uint64_t kShuffleSeed = 3;

// One tensor's moments. A parameter moves in units of its own: a scale in its size, so that rows of
// different sizes are changed alike, a gain in the typical size of its norm's.
class Moments {
 public:
  explicit Moments(const TunedParameter& parameter)
      : first_(parameter.values.size()), second_(parameter.values.size()) {
    const std::vector<float>& values = parameter.values;
    if (parameter.rows > 0) {
      units_.assign(values.begin(), values.end());
      return;
    }
    double squares = 0;
    for (float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
    units_.assign(values.size(), std::sqrt(squares / static_cast<double>(values.size())));
  }

  // `step` counts from 1.
  void apply(TunedParameter& parameter, int64_t step, double rate) {
    const double first_share = 1 - std::pow(kFirstDecay, static_cast<double>(step));
    const double second_share = 1 - std::pow(kSecondDecay, static_cast<double>(step));
    for (size_t i = 0; i < units_.size(); ++i) {
      const double g = static_cast<double>(parameter.gradients[i]) * units_[i];
      first_[i] = kFirstDecay * first_[i] + (1 - kFirstDecay) * g;
      second_[i] = kSecondDecay * second_[i] + (1 - kSecondDecay) * g * g;
      const double change =
          rate * (first_[i] / first_share) / (std::sqrt(second_[i] / second_share) + kLeastRoot);
      double value = static_cast<double>(parameter.values[i]) - change * units_[i];
      if (parameter.rows > 0) value = std::max(0.0, value);
      parameter.values[i] = static_cast<float>(value);
    }
    std::ranges::fill(parameter.gradients, 0.0F);
  }

 private:
  std::vector<double> units_;
  std::vector<double> first_, second_;
};

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

}  // namespace

void tune_parameters(ModelGradient& student, LayerwiseModel& teacher, Windows windows,
                     const TuneSchedule& schedule,
                     const std::function<void(const TuneStep&)>& on_step) {
  std::vector<Moments> moments(student.parameters().begin(), student.parameters().end());
  WindowOrder order(windows);
  for (int64_t step = 1; step <= schedule.steps; ++step) {
    const std::vector<std::vector<int32_t>> batch = order.next(schedule.step_tokens);
    TeacherLoss loss(teacher, batch);
    const double sum = student.add_gradient(batch, std::ref(loss));
    const double done = static_cast<double>(step - 1) / static_cast<double>(schedule.steps);
    const double rate = schedule.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * done));
    for (size_t i = 0; i < moments.size(); ++i) {
      moments[i].apply(student.parameters()[i], step, rate);
    }
    on_step({.step = step, .kl = sum / static_cast<double>(loss.tokens())});
  }
}

double mean_divergence(ModelGradient& student, LayerwiseModel& teacher, Windows windows) {
  TeacherLoss loss(teacher, windows);
  return student.measure(windows, std::ref(loss)) / static_cast<double>(loss.tokens());
}

}  // namespace k3
