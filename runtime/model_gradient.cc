#include "runtime/model_gradient.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/decode_rows.h"
#include "runtime/named_gain.h"
#include "runtime/named_matrix.h"
#include "schema/block_codes.h"
#include "schema/error.h"
#include "schema/model_tensors.h"

namespace k3 {

std::vector<int8_t> rounded_latents(const TunedParameter& parameter) {
  if (parameter.latents.empty()) return {};
  const auto largest = static_cast<float>(largest_code(parameter.format));
  std::vector<int8_t> codes(parameter.latents.size());
  std::ranges::transform(parameter.latents, codes.begin(), [=](float latent) {
    return static_cast<int8_t>(std::nearbyint(std::clamp(latent, -largest, largest)));
  });
  return codes;
}

ModelGradient::ModelGradient(const std::string& pack_path, const std::string& backend,
                             int64_t max_tokens, bool check_hashes, bool train_codes)
    : ModelGradient(pack_path, std::make_unique<GradientTape>(make_backend(backend)), max_tokens,
                    check_hashes, train_codes) {}

ModelGradient::ModelGradient(const std::string& pack_path, std::unique_ptr<GradientTape> tape,
                             int64_t max_tokens, bool check_hashes, bool train_codes)
    : tape_(*tape),
      model_(pack_path, std::move(tape), max_tokens, check_hashes),
      train_codes_(train_codes),
      scratch_(model_.forward().make_stream()) {
  list_parameters();
}

void ModelGradient::list_parameters() {
  const std::vector<ExpectedTensor> tensors = expected_tensors(model_.config());
  for (int64_t layer = 0; layer <= model_.layers(); ++layer) {
    if (layer < model_.layers()) {
      model_.hold_layer(layer);
    } else {
      model_.hold_output();
    }
    // Of another part than the one in memory nothing is found.
    for (const ExpectedTensor& tensor : tensors) add_parameter(tensor, layer);
  }
  model_.hold_nothing();
  stored_.resize(parameters_.size());
  weight_gradients_.resize(parameters_.size());
}

void ModelGradient::add_parameter(const ExpectedTensor& tensor, int64_t layer) {
  Weights& weights = model_.weights();
  TunedParameter parameter{.name = tensor.name, .layer = layer};
  if (const MatrixView* view = find_matrix(weights, tensor.name).view;
      view != nullptr && lies_in_blocks160(view->format)) {
    parameter.rows = view->rows;
    parameter.cols = view->cols;
    parameter.format = view->format;
    parameter.values = decode_scales(*view, model_.pack().path() + ": tensor " + tensor.name);
    if (train_codes_) {
      parameter.latents.resize(static_cast<size_t>(view->rows * view->cols));
      parameter.latent_gradients.resize(parameter.latents.size());
      for (int64_t row = 0; row < view->rows; ++row) {
        decode_codes(*view, row, parameter.latents.data() + row * view->cols);
      }
    }
  } else if (const float** gain = find_gain(weights, tensor.name); gain != nullptr) {
    parameter.values.assign(*gain, *gain + tensor.shape[0]);
  } else {
    return;
  }
  parameter.gradients.resize(parameter.values.size());
  parameters_.push_back(std::move(parameter));
}

void ModelGradient::store_parameters() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const TunedParameter& parameter = parameters_[i];
    if (parameter.rows == 0) continue;
    stored_[i].scales = StoredScales(parameter.values, parameter.rows);
    if (!parameter.latents.empty()) store_codes(parameter, stored_[i]);
  }
}

void ModelGradient::store_codes(const TunedParameter& parameter, Stored& stored) {
  stored.codes = rounded_latents(parameter);
  const Blocks160 place{parameter.format, parameter.rows, parameter.cols};
  pack_codes(place, stored.codes, stored.planes.room_for(place.multipliers_offset()));
}

// Into the weights of the part that was just read.
void ModelGradient::put_in_place(int64_t layer, bool collect) {
  tape_.forget_parameters();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    TunedParameter& parameter = parameters_[i];
    if (parameter.layer != layer) continue;
    if (parameter.rows == 0) {
      *find_gain(model_.weights(), parameter.name) = parameter.values.data();
      if (collect) tape_.collect_gain(parameter.values.data(), parameter.gradients.data());
      continue;
    }
    MatrixView& view = *find_matrix(model_.weights(), parameter.name).view;
    view.scales = stored_[i].scales.multipliers.data();
    view.row_scales = stored_[i].scales.row_scales.data();
    if (parameter.latents.empty()) {
      if (collect) tape_.collect_scales(view, parameter.gradients.data());
      continue;
    }
    const Blocks160 place{parameter.format, parameter.rows, parameter.cols};
    view.codes = stored_[i].planes.data();
    if (place.planes() == 2) view.second_codes = view.codes + place.plane_offset(1);
    if (!collect) continue;
    weight_gradients_[i].assign(parameter.latents.size(), 0.0F);
    tape_.collect_weights(view, weight_gradients_[i].data());
  }
}

double ModelGradient::measure(Windows windows, const Loss& loss) {
  store_parameters();
  WindowPass pass(model_, windows);
  pass.run_layers([&](int64_t layer) { put_in_place(layer, false); });
  model_.hold_output();
  put_in_place(model_.layers(), false);
  double sum = 0;
  for (int64_t window = 0; window < pass.windows(); ++window) {
    sum += finish(pass, window, loss, nullptr);
  }
  model_.hold_nothing();
  return sum;
}

double ModelGradient::add_gradient(Windows windows, const Loss& loss) {
  store_parameters();
  WindowPass pass(model_, windows);
  std::vector<std::vector<std::vector<float>>> entering;  // prefixes, by layer and window
  pass.run_layers([&](int64_t layer) {
    put_in_place(layer, false);
    std::vector<std::vector<float>>& prefixes = entering.emplace_back();
    for (int64_t window = 0; window < pass.windows(); ++window) {
      prefixes.push_back(pass.stream(window).prefix);
    }
  });
  model_.hold_output();
  put_in_place(model_.layers(), true);
  std::vector<StreamGradient> gradients(windows.size());
  double sum = 0;
  for (int64_t window = 0; window < pass.windows(); ++window) {
    sum += finish(pass, window, loss, &gradients[static_cast<size_t>(window)]);
  }
  for (int64_t layer = model_.layers() - 1; layer >= 0; --layer) {
    model_.hold_layer(layer);
    if (!model_.experts().all_resident()) {
      throw Error(model_.pack().path(), ": layer ", layer, " has room for ",
                  model_.experts().capacity_experts(),
                  " of its experts in half of the free memory, a gradient needs all of them");
    }
    put_in_place(layer, true);
    for (int64_t window = 0; window < pass.windows(); ++window) {
      play_back_layer(layer, pass.tokens(window),
                      entering[static_cast<size_t>(layer)][static_cast<size_t>(window)],
                      pass.stream(window), gradients[static_cast<size_t>(window)]);
    }
    spread_weight_gradients(layer);
  }
  model_.hold_nothing();
  return sum;
}

// From those of weights, w = scale x code, to those of both factors.
void ModelGradient::spread_weight_gradients(int64_t layer) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    TunedParameter& parameter = parameters_[i];
    if (parameter.layer != layer || parameter.latents.empty()) continue;
    const int64_t blocks = std::ssize(parameter.values) / parameter.rows;
    tbb::parallel_for(int64_t{0}, parameter.rows * blocks, [&](int64_t at) {
      const int64_t begin = at / blocks * parameter.cols + at % blocks * kBlockInputs;
      const int64_t end = std::min(begin + kBlockInputs, (at / blocks + 1) * parameter.cols);
      const float scale = parameter.values[static_cast<size_t>(at)];
      double sum = 0;
      for (auto j = static_cast<size_t>(begin); j < static_cast<size_t>(end); ++j) {
        const float gradient = weight_gradients_[i][j];
        sum += static_cast<double>(gradient) * stored_[i].codes[j];
        parameter.latent_gradients[j] += gradient * scale;
      }
      parameter.gradients[static_cast<size_t>(at)] += static_cast<float>(sum);
    });
    weight_gradients_[i] = {};
  }
}

// What follows the layers, and with `gradient` its play-back.
double ModelGradient::finish(WindowPass& pass, int64_t window, const Loss& loss,
                             StreamGradient* gradient) {
  const int64_t tokens = pass.tokens(window);
  const int64_t values = tokens * model_.config().hidden_size;
  ResidualStream& stream = pass.stream(window);
  std::vector<float> logits(static_cast<size_t>(tokens * model_.config().vocab_size));
  if (gradient != nullptr) tape_.start();
  const float* x = model_.forward().finish(tokens, stream, nullptr);
  tape_.matmul(model_.weights().head, x, tokens, logits.data());
  if (gradient == nullptr) return loss(window, logits, {});

  const double value = loss(window, logits, tape_.gradient(logits.data(), std::ssize(logits)));
  tape_.play_back();
  const auto of = [&](const std::vector<float>& part) {
    const std::span<const float> found = tape_.gradient(part.data(), values);
    return std::vector<float>(found.begin(), found.end());
  };
  gradient->prefix = of(stream.prefix);
  for (int64_t i = 0; i < stream.live_snapshots; ++i) {
    gradient->snapshots.push_back(of(stream.snapshots[static_cast<size_t>(i)]));
  }
  return value;
}

// `gradient`, of the stream behind the layer, becomes that of the stream before it. `later` has
// the window's snapshots, and more of them than the layer sees.
void ModelGradient::play_back_layer(int64_t layer, int64_t tokens, const std::vector<float>& prefix,
                                    const ResidualStream& later, StreamGradient& gradient) {
  const int64_t values = tokens * model_.config().hidden_size;
  const auto before = static_cast<size_t>(snapshots_before(layer));
  scratch_.prefix = prefix;
  scratch_.live_snapshots = static_cast<int64_t>(before);
  for (size_t i = 0; i < before; ++i) scratch_.snapshots[i] = later.snapshots[i];

  LayerState state = fresh_layer_state(model_.config(), layer);
  tape_.start();
  model_.forward().run_layer(layer, tokens, scratch_, 0, state, nullptr);
  const auto of = [&](const std::vector<float>& part) {
    return tape_.gradient(part.data(), values);
  };
  std::ranges::copy(gradient.prefix, of(scratch_.prefix).begin());
  for (size_t i = 0; i < gradient.snapshots.size(); ++i) {
    std::ranges::copy(gradient.snapshots[i], of(scratch_.snapshots[i]).begin());
  }
  tape_.play_back();
  std::ranges::copy(of(scratch_.prefix), gradient.prefix.begin());
  gradient.snapshots.resize(before);
  for (size_t i = 0; i < before; ++i) {
    std::ranges::copy(of(scratch_.snapshots[i]), gradient.snapshots[i].begin());
  }
}

int64_t ModelGradient::snapshots_before(int64_t layer) const {
  const auto& block = model_.config().attention_residual_block;
  return block ? divide_up(layer, *block) : 0;
}

}  // namespace k3
