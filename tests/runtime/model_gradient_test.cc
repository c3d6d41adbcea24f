#include "runtime/model_gradient.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/runtime/packs.h"

namespace k3 {
namespace {

const std::vector<std::vector<int32_t>> kWindows = {test::kPrompt,
                                                    {77, 12, 905, 300, 4, 4, 610, 291}};

// A loss whose gradient is known: a fixed random combination of all logits.
class RandomSum {
 public:
  double operator()(int64_t window, std::span<const float> logits, std::span<float> gradient) {
    std::mt19937 random(static_cast<uint32_t>(window));
    std::normal_distribution<float> normal;
    double sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const float weight = normal(random) / 64;
      sum += static_cast<double>(weight) * static_cast<double>(logits[i]);
      if (!gradient.empty()) gradient[i] = weight;
    }
    return sum;
  }
};

// "self_attn.q_proj.weight": without the layer.
std::string kind_of(const std::string& name) {
  const std::string layers = "model.layers.";
  if (!name.starts_with(layers)) return name;
  return name.substr(name.find('.', layers.size()) + 1);
}

// Random relative changes of all parameters of one kind; a matrix's scales change row by row, which
// leaves their ratios, and with them the bytes they are rounded to.
std::vector<double> direction(const TunedParameter& parameter, std::mt19937& random) {
  std::normal_distribution<double> normal;
  const size_t blocks =
      parameter.rows > 0 ? parameter.values.size() / static_cast<size_t>(parameter.rows) : 1;
  std::vector<double> change(parameter.values.size());
  for (size_t i = 0; i < change.size(); i += blocks) {
    const double relative = normal(random);
    for (size_t j = i; j < i + blocks; ++j) change[j] = relative * parameter.values[j];
  }
  return change;
}

class ModelGradientOf : public testing::TestWithParam<const char*> {};

// Central differences of float outputs are good to a few parts in a thousand; a wrong rule for any
// operation is off by parts in ten. A router that changes its mind between two points would show as
// a jump; at these steps none does.
TEST_P(ModelGradientOf, IsWhatTheLossChangesByForEveryKindOfParameter) {
  ModelGradient model(test::pack_path(GetParam()), "reference", 16, true);
  model.add_gradient(kWindows, RandomSum());
  std::vector<TunedParameter>& parameters = model.parameters();
  std::map<std::string, std::vector<size_t>> kinds;
  for (size_t i = 0; i < parameters.size(); ++i) kinds[kind_of(parameters[i].name)].push_back(i);
  ASSERT_GE(kinds.size(), 6U);
  std::mt19937 random(1);
  for (const auto& [kind, members] : kinds) {
    double expected = 0;
    std::map<size_t, std::vector<double>> changes;
    for (size_t i : members) {
      changes[i] = direction(parameters[i], random);
      for (size_t j = 0; j < changes[i].size(); ++j) {
        expected += changes[i][j] * static_cast<double>(parameters[i].gradients[j]);
      }
    }
    const auto loss_at = [&](double step) {
      std::map<size_t, std::vector<float>> old;
      for (size_t i : members) {
        old[i] = parameters[i].values;
        for (size_t j = 0; j < changes[i].size(); ++j) {
          parameters[i].values[j] += static_cast<float>(step * changes[i][j]);
        }
      }
      const double loss = model.measure(kWindows, RandomSum());
      for (size_t i : members) parameters[i].values = old[i];
      return loss;
    };
    constexpr double kStep = 2e-4;
    const double measured = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR(measured, expected, 0.02 * std::abs(expected) + 2e-3) << kind;
  }
}

INSTANTIATE_TEST_SUITE_P(Packs, ModelGradientOf,
                         testing::Values("nano_ternary", "odd_int8", "odd_ternary2", "linear",
                                         "nano_rotated", "odd_rotated_int8"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(ModelGradient, HasTheSameBitsOnOneThreadAndOnTwo) {
  ModelGradient model(test::pack_path("nano_ternary"), "cpu", 16, true);
  const auto gradients_on = [&](size_t threads) {
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
    std::vector<std::vector<float>> gradients;
    model.add_gradient(kWindows, RandomSum());
    for (TunedParameter& parameter : model.parameters()) {
      gradients.push_back(parameter.gradients);
      std::ranges::fill(parameter.gradients, 0.0F);
    }
    return gradients;
  };
  EXPECT_EQ(gradients_on(1), gradients_on(2));
}

TEST(ModelGradient, OfSeveralWindowsIsTheSumOfTheirs) {
  ModelGradient model(test::pack_path("nano_ternary"), "cpu", 16, true);
  const std::vector<std::vector<int32_t>> twice = {kWindows[0], kWindows[0]};
  const auto same = [](int64_t, std::span<const float> logits, std::span<float> gradient) {
    return RandomSum()(0, logits, gradient);
  };
  const double once_loss = model.add_gradient({twice.data(), 1}, same);
  std::vector<std::vector<float>> once;
  for (TunedParameter& parameter : model.parameters()) {
    once.push_back(parameter.gradients);
    std::ranges::fill(parameter.gradients, 0.0F);
  }
  EXPECT_DOUBLE_EQ(model.add_gradient(twice, same), 2 * once_loss);
  for (size_t i = 0; i < once.size(); ++i) {
    for (size_t j = 0; j < once[i].size(); ++j) {
      ASSERT_EQ(model.parameters()[i].gradients[j], 2 * once[i][j]) << model.parameters()[i].name;
    }
  }
}

}  // namespace
}  // namespace k3
