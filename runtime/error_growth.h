// What a layer makes of an error in what it reads: the measurements behind the question whether
// errors of a compressed trunk contract or grow with depth.
//
// The state s that passes from layer to layer is the residual stream and every attention-residual
// snapshot; the error is d = s_compressed - s_original, as it really arrives. For a layer F the
// growth at one token is
//   A(d) = (|F(s + d) - F(s)| / |F(s)|) / (|d| / |s|)
// with norms over the whole state. A is a ratio of relative errors: a layer that adds a large
// branch to s dilutes an old error (A < 1) and repairs nothing, so A comes with the angle between
// F(s + d) and F(s), the response of each branch alone, and a comparison of the product of all A
// with what really arrives at the end.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/layerwise_model.h"

namespace k3 {

// Over tokens.
struct Spread {
  double median = 0;
  double p95 = 0;
  double max = 0;
};

Spread spread_of(std::vector<double> values);  // of at least one

struct BranchGrowth {
  Branch branch = Branch::kKda;
  Spread response;   // A with the branch's output in place of the layer's
  double share = 0;  // |branch| / |stream behind it|, the median
};

inline constexpr std::array<double, 3> kErrorScales = {0.1, 1, 3};

struct LayerGrowth {
  int64_t layer = 0;
  // Of the real error times kErrorScales; nothing where no error arrives (before the first
  // compressed layer). Where the first two differ by more than a tenth, no linear picture holds.
  std::optional<std::array<Spread, 3>> real;
  double turned = 0;  // 1 - cos between the streams of the real error, the mean
  double late = 1;    // the median in the last quarter of each document over that in the first; 1
                      // where documents have no quarters
  Spread random;      // of errors of the real one's size, or of 1 %, in random directions
  double worst = 0;   // in the worst direction found
  bool worst_is_exact = false;  // from a whole Jacobian; else the maximum of what was tried
  std::vector<BranchGrowth> branches;

  // Root mean squares over all tokens, relative to the original's state.
  double entering = 0;     // |d| / |s|
  double inherited = 0;    // what the original layer makes of d
  double injected = 0;     // what the compressed layer adds on a clean input
  double leaving = 0;      // of the compressed layer on its own input
  double correlation = 0;  // of inherited and injected; leaving^2 = i^2 + j^2 + 2 c i j
  double flipped = 0;      // share of chosen experts that the real error changes
};

// One layer compressed, all others original.
struct Injection {
  int64_t layer = 0;
  double injected = 0;   // relative error behind that layer
  double predicted = 0;  // times the median growth of every later layer
  double measured = 0;   // at the end
};

struct ErrorGrowth {
  int64_t documents = 0;
  int64_t tokens = 0;
  std::vector<LayerGrowth> layers;
  std::vector<Injection> injections;
  double end = 0;  // relative error of the last state with all layers compressed
};

struct ErrorGrowthOptions {
  int64_t random_directions = 8;
  int64_t injections = 5;  // layers spread evenly
  // A Jacobian is made where the state of one token has at most so many values, and at so many
  // tokens of the first document; else 64 random directions stand for the worst.
  int64_t widest_jacobian = 2048;
  int64_t jacobian_tokens = 3;
  uint64_t seed = 0;
};

// Runs `documents` (token ids, each at most the models' max_tokens) through both models, layer by
// layer. Both have the same config. `on_layer` is told each layer that is done.
ErrorGrowth measure_error_growth(LayerwiseModel& original, LayerwiseModel& compressed,
                                 std::span<const std::vector<int32_t>> documents,
                                 const ErrorGrowthOptions& options,
                                 const std::function<void(int64_t)>& on_layer);

}  // namespace k3
