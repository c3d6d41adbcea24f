#include "runtime/model_gradient.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/runtime/packs.h"

namespace k3 {
namespace {

// Short, so that few routers stand before a close choice.
const std::vector<std::vector<int32_t>> kWindows = {{132, 84, 263, 402, 291, 905},
                                                    {77, 12, 300, 4}};

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

// The loss at parameters that are `step` of `changes` away, by the parameters' places.
using Changes = std::map<size_t, std::vector<double>>;
double loss_at(ModelGradient& model, const Changes& changes, double step) {
  std::map<size_t, std::vector<float>> old;
  for (const auto& [i, change] : changes) {
    std::vector<float>& values = model.parameters()[i].values;
    old[i] = values;
    for (size_t j = 0; j < change.size(); ++j) values[j] += static_cast<float>(step * change[j]);
  }
  const double loss = model.measure(kWindows, RandomSum());
  for (const auto& [i, values] : old) model.parameters()[i].values = values;
  return loss;
}

// Whether the loss changes in a random direction as the gradients of these parameters say. Central
// differences of float outputs are good to a few parts in a thousand.
bool agrees(ModelGradient& model, const std::vector<size_t>& places, std::mt19937& random) {
  constexpr double kStep = 3e-5;
  Changes changes;
  double expected = 0;
  for (size_t i : places) {
    const TunedParameter& parameter = model.parameters()[i];
    changes[i] = direction(parameter, random);
    for (size_t j = 0; j < changes[i].size(); ++j) {
      expected += changes[i][j] * static_cast<double>(parameter.gradients[j]);
    }
  }
  const double measured =
      (loss_at(model, changes, kStep) - loss_at(model, changes, -kStep)) / (2 * kStep);
  return std::abs(measured - expected) <= 0.02 * std::abs(expected) + 0.02;
}

// Somewhere between the two points a router of 897 random experts may change its mind, and the loss
// jumps: in one try of ten or so. A wrong rule for any operation is off by parts in
// ten, every time.
TEST_P(ModelGradientOf, IsWhatTheLossChangesByForEveryKindOfParameter) {
  ModelGradient model(test::pack_path(GetParam()), "reference", 16, true);
  model.add_gradient(kWindows, RandomSum());
  std::map<std::string, std::vector<size_t>> kinds;
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    kinds[kind_of(model.parameters()[i].name)].push_back(i);
  }
  ASSERT_GE(kinds.size(), 5U);
  std::mt19937 random(1);
  for (const auto& [kind, places] : kinds) {
    int agreements = 0;
    for (int tries = 0; tries < 6 && agreements < 2; ++tries) {
      agreements += agrees(model, places, random) ? 1 : 0;
    }
    EXPECT_EQ(agreements, 2) << kind;
  }
}

INSTANTIATE_TEST_SUITE_P(Packs, ModelGradientOf,
                         testing::Values("nano_ternary", "nano_rotated", "odd_int8", "linear"),
                         [](const auto& instance) { return std::string(instance.param); });

// w = scale x code: by how much a scale matters follows from how much its weights do.
TEST(ModelGradient, OfCodesAddsUpToThatOfTheirScale) {
  ModelGradient of_scales(test::pack_path("nano_ternary2"), "cpu", 16, true);
  ModelGradient of_codes(test::pack_path("nano_ternary2"), "cpu", 16, true, true);
  EXPECT_EQ(of_codes.add_gradient(kWindows, RandomSum()),
            of_scales.add_gradient(kWindows, RandomSum()));
  int64_t matrices = 0;
  for (size_t i = 0; i < of_codes.parameters().size(); ++i) {
    const TunedParameter& parameter = of_codes.parameters()[i];
    const TunedParameter& want = of_scales.parameters()[i];
    float largest = 0;
    for (float gradient : want.gradients) largest = std::max(largest, std::abs(gradient));
    for (size_t j = 0; j < want.gradients.size(); ++j) {
      ASSERT_NEAR(parameter.gradients[j], want.gradients[j], 1e-4 * largest) << want.name;
    }
    if (parameter.latents.empty()) continue;
    ++matrices;
    const std::vector<int8_t> codes = rounded_latents(parameter);
    double from_codes = 0;
    double from_scales = 0;
    for (size_t j = 0; j < codes.size(); ++j) {
      from_codes += static_cast<double>(parameter.latent_gradients[j]) * codes[j];
    }
    for (size_t j = 0; j < want.gradients.size(); ++j) {
      from_scales += static_cast<double>(want.gradients[j]) * static_cast<double>(want.values[j]);
    }
    EXPECT_NEAR(from_codes, from_scales, 1e-3 * std::abs(from_scales) + 1e-3) << parameter.name;
  }
  EXPECT_EQ(matrices, 78);
}

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
    const float largest = std::abs(
        *std::ranges::max_element(once[i], {}, [](float gradient) { return std::abs(gradient); }));
    for (size_t j = 0; j < once[i].size(); ++j) {
      ASSERT_NEAR(model.parameters()[i].gradients[j], 2 * once[i][j], 1e-5 * largest)
          << model.parameters()[i].name;
    }
  }
}

}  // namespace
}  // namespace k3
