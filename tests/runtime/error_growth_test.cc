#include "runtime/error_growth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "runtime/growth_report.h"
#include "runtime/layer_jacobian.h"
#include "schema/error.h"
#include "tests/runtime/packs.h"

namespace k3 {
namespace {

constexpr int64_t kTokens = 16;

std::vector<std::vector<int32_t>> documents() {
  return {{132, 84, 263, 402, 291, 905, 77, 310, 512, 12, 33, 501},
          {132, 905, 14, 6, 310, 291, 800, 41}};
}

ErrorGrowthOptions quick() {
  ErrorGrowthOptions options;
  options.random_directions = 2;
  options.injections = 2;
  options.widest_jacobian = 0;
  return options;
}

ErrorGrowth measure(const std::string& compressed, const std::string& original,
                    const std::vector<std::vector<int32_t>>& texts = documents()) {
  LayerwiseModel a(test::pack_path(original), "reference", kTokens, true);
  LayerwiseModel b(test::pack_path(compressed), "reference", kTokens, true);
  return measure_error_growth(a, b, texts, quick(), [](int64_t) {});
}

TEST(ErrorGrowth, ASpreadIsTheMiddleTheTailAndTheEnd) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Spread spread = spread_of(values);
  EXPECT_EQ(spread.median, 50);
  EXPECT_EQ(spread.p95, 95);
  EXPECT_EQ(spread.max, 100);
}

TEST(ErrorGrowth, APackAgainstItselfHasNoError) {
  const ErrorGrowth growth = measure("odd", "odd");
  EXPECT_EQ(growth.tokens, 20);
  EXPECT_EQ(growth.end, 0);
  for (const LayerGrowth& layer : growth.layers) {
    EXPECT_FALSE(layer.real.has_value());
    EXPECT_EQ(layer.injected, 0);
    EXPECT_GT(layer.random.median, 0);  // of made errors
  }
  EXPECT_EQ(growth.injections.front().measured, 0);
}

TEST(ErrorGrowth, DocumentsTooShortForQuartersSayNothingOfLateTokens) {
  const ErrorGrowth growth = measure("odd_int8", "odd", {{132, 84, 263}});
  EXPECT_TRUE(growth.layers.back().real.has_value());
  for (const LayerGrowth& layer : growth.layers) EXPECT_EQ(layer.late, 1);
}

TEST(ErrorGrowth, WhatLeavesALayerEntersTheNext) {
  for (const auto& [compressed, original] :
       std::map<std::string, std::string>{{"odd_int8", "odd"}, {"nano_ternary", "nano"}}) {
    SCOPED_TRACE(compressed);
    const ErrorGrowth growth = measure(compressed, original);
    for (size_t i = 0; i + 1 < growth.layers.size(); ++i) {
      EXPECT_NEAR(growth.layers[i].leaving, growth.layers[i + 1].entering,
                  1e-9 + 1e-6 * growth.layers[i].leaving);
    }
    EXPECT_DOUBLE_EQ(growth.layers.back().leaving, growth.end);
    EXPECT_GT(growth.end, 0);
  }
}

// A layer alone, then originals: the first of them turns exactly that error into what it inherits.
TEST(ErrorGrowth, AnErrorInjectedIntoTheFirstLayerIsWhatItsLayerInjects) {
  const ErrorGrowth growth = measure("nano_ternary", "nano");
  ASSERT_EQ(growth.injections.front().layer, 0);
  EXPECT_NEAR(growth.injections.front().injected, growth.layers.front().injected,
              1e-6 * growth.layers.front().injected);
  // In a trained model the product of medians is near what arrives.
  EXPECT_NEAR(growth.injections.front().predicted / growth.injections.front().measured, 1, 0.3);
}

TEST(ErrorGrowth, SmallErrorsGrowAsTheJacobianSaysAtMost) {
  LayerwiseModel model(test::pack_path("nano"), "reference", kTokens, true);
  const std::vector<int32_t> ids = documents()[0];
  ResidualStream stream = model.forward().make_stream();
  model.hold_embedding();
  model.forward().embed(ids, stream);
  const int64_t token = 7;
  const int64_t hidden = model.config().hidden_size;
  for (int64_t layer = 0; layer < 3; ++layer) {
    model.hold_layer(layer);
    const double worst = worst_growth(model, layer, stream, token);
    const auto run = [&](ResidualStream in) {
      LayerState state = fresh_layer_state(model.config(), layer);
      model.forward().run_layer(layer, std::ssize(ids), in, 0, state, nullptr);
      return in;
    };
    const ResidualStream clean = run(stream);
    ResidualStream off = stream;
    double size = 0;
    double change = 0;
    const auto at = static_cast<size_t>(token * hidden);
    for (size_t i = at; i < at + static_cast<size_t>(hidden); ++i) {
      const float step = (i % 3 == 0 ? 1e-3f : -1e-3f) * std::abs(stream.prefix[i]);
      off.prefix[i] += step;
      change += static_cast<double>(step) * step;
      size += static_cast<double>(stream.prefix[i]) * stream.prefix[i];
      for (int64_t s = 0; s < stream.live_snapshots; ++s) {
        size += std::pow(stream.snapshots[static_cast<size_t>(s)][i], 2);
      }
    }
    const ResidualStream moved = run(off);
    double out_size = 0;
    double out_change = 0;
    for (size_t i = at; i < at + static_cast<size_t>(hidden); ++i) {
      out_size += std::pow(clean.prefix[i], 2);
      out_change += std::pow(static_cast<double>(moved.prefix[i]) - clean.prefix[i], 2);
      for (int64_t s = 0; s < clean.live_snapshots; ++s) {
        const auto& a = clean.snapshots[static_cast<size_t>(s)];
        const auto& b = moved.snapshots[static_cast<size_t>(s)];
        out_size += std::pow(a[i], 2);
        out_change += std::pow(static_cast<double>(b[i]) - a[i], 2);
      }
    }
    const double growth = std::sqrt(out_change / out_size / (change / size));
    EXPECT_GT(growth, 0);
    EXPECT_LE(growth, 1.05 * worst) << "layer " << layer;
    stream = clean;
  }
}

// Records one layer's branches and the stream after it.
class Adder final : public ForwardObserver {
 public:
  void on_layer(int64_t layer, int64_t tokens, const float* hidden) override {
    (void)tokens;
    if (layer == wanted) after = hidden[0];
  }
  void on_routing(int64_t, int64_t, const int32_t*, const float*) override {}
  void on_branch(int64_t layer, Branch, int64_t, const float* y) override {
    if (layer == wanted) added += y[0];
  }
  int64_t wanted = 1;  // no layer that starts a block
  double added = 0;
  double after = 0;
};

TEST(ErrorGrowth, BranchesAreAllThatALayerAdds) {
  for (const char* pack : test::kPacks) {
    SCOPED_TRACE(pack);
    LayerwiseModel model(test::pack_path(pack), "reference", kTokens, true);
    ResidualStream stream = model.forward().make_stream();
    model.hold_embedding();
    model.forward().embed(documents()[0], stream);
    for (int64_t layer = 0; layer < 2; ++layer) {
      const double before = stream.prefix[0];
      Adder adder;
      LayerState state = fresh_layer_state(model.config(), layer);
      model.hold_layer(layer);
      model.forward().run_layer(layer, std::ssize(documents()[0]), stream, 0, state, &adder);
      if (layer == 1) {
        EXPECT_NEAR(before + adder.added, adder.after, 1e-5);
      }
    }
  }
}

TEST(ErrorGrowth, TheReportsNameEveryLayerAndBranch) {
  const ErrorGrowth growth = measure("odd_int8", "odd");
  LayerwiseModel model(test::pack_path("odd"), "reference", kTokens, true);
  std::ostringstream table;
  print_growth(growth, model.config(), table);
  for (const char* word : {"KDA", "MLA", "dense", "shared", "routed", "predicted", "at the end"}) {
    EXPECT_NE(table.str().find(word), std::string::npos) << word;
  }
  std::ostringstream json;
  write_growth(growth, model.config(), json);
  EXPECT_NE(json.str().find("\"worst_is\": \"lower bound\""), std::string::npos);
  EXPECT_NE(growth_chart(growth).find("A, worst"), std::string::npos);
}

}  // namespace
}  // namespace k3
