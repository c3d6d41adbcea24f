// The gradient of a loss of a model's logits with respect to its block scales and norm gains, with
// one layer's weights in memory at a time.
//
// Forward, what enters each layer is kept; backward, each layer runs once more from there, its
// operations written down, and is played back. So memory is the streams of a batch before every
// layer and one layer's activations for one window, and a batch reads the model twice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/gradient_tape.h"
#include "runtime/layerwise_model.h"
#include "runtime/window_pass.h"
#include "schema/aligned_bytes.h"
#include "schema/formats/block_scales.h"
#include "schema/model_tensors.h"

namespace k3 {

// The scales of a matrix in blocks160, and its codes where they are trained, or the gain of a norm.
struct TunedParameter {
  std::string name;   // of its tensor
  int64_t layer = 0;  // the number of layers for what follows them
  int64_t rows = 0;   // of the matrix; 0 for a gain
  int64_t cols = 0;
  Format format = Format::kF32;
  std::vector<float> values = {};     // [rows, blocks] or [width]; scales are not negative
  std::vector<float> gradients = {};  // likewise: sums over the batches since they were last zeroed
  // Where codes are trained, [rows, cols], else empty: what each code is rounded from, in units of
  // its scale, and its gradient, taken straight through that rounding.
  std::vector<float> latents = {};
  std::vector<float> latent_gradients = {};
};

// The codes that the forward pass runs with: the latents, rounded; none where there are none.
std::vector<int8_t> rounded_latents(const TunedParameter& parameter);

class ModelGradient {
 public:
  // Reads every layer once for the parameters as the pack has them. Throws Error.
  ModelGradient(const std::string& pack_path, const std::string& backend, int64_t max_tokens,
                bool check_hashes, bool train_codes = false);

  LayerwiseModel& model() { return model_; }
  std::vector<TunedParameter>& parameters() { return parameters_; }

  // Given the logits [tokens, vocab] of a window, returns its loss, and fills in the gradient of
  // that, of the same shape, unless it is empty.
  using Loss = std::function<double(int64_t window, std::span<const float> logits,
                                    std::span<float> gradient)>;
  // The sum of the losses of all windows, with the parameters rounded as a pack stores them.
  double measure(Windows windows, const Loss& loss);
  // The same; adds to the parameters' gradients. Throws Error when the experts of a layer do not
  // fit into memory together.
  double add_gradient(Windows windows, const Loss& loss);

 private:
  ModelGradient(const std::string& pack_path, std::unique_ptr<GradientTape> tape,
                int64_t max_tokens, bool check_hashes, bool train_codes);

  // Scales and trained codes as the forward pass reads them.
  struct Stored {
    StoredScales scales;
    std::vector<int8_t> codes;  // [rows, cols]
    AlignedBytes planes;        // the same, packed
  };
  // Of one window: the gradient of its stream at the place that play-back has come to.
  struct StreamGradient {
    std::vector<float> prefix;
    std::vector<std::vector<float>> snapshots;
  };

  void list_parameters();
  void add_parameter(const ExpectedTensor& tensor, int64_t layer);
  void store_parameters();
  void store_codes(const TunedParameter& parameter, Stored& stored);
  void put_in_place(int64_t layer, bool collect);
  void spread_weight_gradients(int64_t layer);
  double finish(WindowPass& pass, int64_t window, const Loss& loss, StreamGradient* gradient);
  void play_back_layer(int64_t layer, int64_t tokens, const std::vector<float>& prefix,
                       const ResidualStream& later, StreamGradient& gradient);
  int64_t snapshots_before(int64_t layer) const;

  GradientTape& tape_;  // the model's backend
  LayerwiseModel model_;
  bool train_codes_;
  ResidualStream scratch_;
  std::vector<TunedParameter> parameters_;
  std::vector<Stored> stored_;                        // of each parameter
  std::vector<std::vector<float>> weight_gradients_;  // likewise, of one layer at a time
};

}  // namespace k3
