#include "runtime/capture_forecast.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "schema/layout.h"
#include "schema/matrix_inputs.h"
#include "schema/model_tensors.h"

namespace k3 {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kBf16Bytes = 2;

bool is_matrix(const ExpectedTensor& tensor) {
  return tensor.shape.rank() == 2 && tensor.shape[0] > 1;
}

// What `wanted` of something take when `measured` of it took `seconds`.
double scaled(double seconds, int64_t measured, int64_t wanted) {
  return measured == 0 ? 0 : seconds * static_cast<double>(wanted) / static_cast<double>(measured);
}

int64_t bank_bytes(const ModelConfig& config) {
  const ExpertBands expert{Format::kMxfp4, config.expert_width(), config.expert_intermediate_size,
                           Layout::kExpertBandsCompact};
  return config.experts * expert.extent_bytes();
}

// Of one layer in bf16 and MXFP4, and of all of them with embedding and head.
struct WeightBytes {
  int64_t all = 0;
  int64_t largest_layer = 0;
};

WeightBytes weight_bytes(const ModelConfig& config) {
  std::vector<int64_t> layers(config.layers.size());
  WeightBytes bytes;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    const int64_t tensor_bytes = tensor.shape.elements().value() * kBf16Bytes;
    bytes.all += tensor_bytes;
    constexpr std::string_view kLayers = "model.layers.";
    if (!tensor.name.starts_with(kLayers)) continue;
    layers[std::stoul(tensor.name.substr(kLayers.size()))] += tensor_bytes;
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    if (config.layers[i].ffn == FfnKind::kMoe) {
      layers[i] += bank_bytes(config);
      bytes.all += bank_bytes(config);
    }
  }
  bytes.largest_layer = *std::max_element(layers.begin(), layers.end());
  return bytes;
}

std::string duration(double seconds) {
  char text[32];
  if (seconds < 120) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 2 * 3600) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else if (seconds < 2 * 86400) {
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  } else {
    std::snprintf(text, sizeof text, "%.1f days", seconds / 86400);
  }
  return text;
}

double gigabytes(int64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

}  // namespace

int64_t products_of_layer(const ModelConfig& config, int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  int64_t products = 0;
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    if (is_matrix(tensor) && tensor.name.starts_with(prefix)) {
      products += tensor.shape[0] * tensor.shape[1];
    }
  }
  if (config.layers[static_cast<size_t>(layer)].ffn == FfnKind::kMoe) {
    products +=
        config.experts_per_token * 3 * config.expert_width() * config.expert_intermediate_size;
  }
  return products;
}

CaptureForecast forecast_capture(const CaptureCost& cost, const ModelConfig& config,
                                 int64_t tokens) {
  CaptureForecast forecast{.tokens = tokens};
  const auto layers = static_cast<int64_t>(config.layers.size());
  int64_t gram_entries = 0;
  for (int64_t layer = 0; layer <= layers; ++layer) {
    int64_t widths = 0;
    for (const SharedInput& input : matrix_inputs(config, layer)) {
      widths += input.width;
      gram_entries += input.width * (input.width + 1) / 2;
    }
    forecast.layer_input_bytes =
        std::max(forecast.layer_input_bytes, tokens * widths * kFloatBytes);
  }
  const WeightBytes weights = weight_bytes(config);
  forecast.read_bytes = weights.all;
  forecast.layer_memory_bytes = weights.largest_layer;
  forecast.read_seconds = scaled(cost.read_seconds, cost.weight_bytes, weights.all);
  int64_t products = 0;
  for (int64_t layer = 0; layer < layers; ++layer) products += products_of_layer(config, layer);
  forecast.forward_seconds = scaled(cost.forward_seconds, cost.forward_products, products * tokens);
  forecast.gram_seconds = scaled(cost.gram_seconds, cost.gram_products, gram_entries * tokens);
  const int64_t sums = 2 * gram_entries;  // two halves
  forecast.store_seconds = scaled(cost.store_seconds, cost.stored_sums, sums);
  forecast.calibration_bytes =
      static_cast<int64_t>(scaled(static_cast<double>(cost.stored_bytes), cost.stored_sums, sums));

  // A layer reads prefix and snapshots and writes the prefix.
  const int64_t row_bytes = tokens * config.hidden_size * kFloatBytes;
  int64_t spill_bytes = 0;
  int64_t snapshots = 0;
  for (int64_t layer = 0; layer < layers; ++layer) {
    spill_bytes += (2 + snapshots) * row_bytes;
    if (config.attention_residual_block && layer % *config.attention_residual_block == 0) {
      ++snapshots;
      spill_bytes += row_bytes;
    }
  }
  forecast.stream_bytes = (2 + snapshots) * row_bytes;
  forecast.spill_seconds = scaled(cost.spill_seconds, cost.spill_bytes, spill_bytes);
  return forecast;
}

void print_forecast(const CaptureForecast& f, std::ostream& out) {
  char line[512];
  std::snprintf(line, sizeof line,
                "the full-size K3 at these rates, %lld tokens: %s (reading %.2f TB of weights %s, "
                "forward %s, streams %s, Gram matrices %s, storing them %s)\n",
                static_cast<long long>(f.tokens), duration(f.seconds()).c_str(),
                static_cast<double>(f.read_bytes) / 1e12, duration(f.read_seconds).c_str(),
                duration(f.forward_seconds).c_str(), duration(f.spill_seconds).c_str(),
                duration(f.gram_seconds).c_str(), duration(f.store_seconds).c_str());
  out << line;
  std::snprintf(line, sizeof line,
                "  disk: %.0f GB calibration, %.0f GB streams, up to %.0f GB inputs of one layer; "
                "memory: %.1f GB for a layer's weights to be read once\n",
                gigabytes(f.calibration_bytes), gigabytes(f.stream_bytes),
                gigabytes(f.layer_input_bytes), gigabytes(f.layer_memory_bytes));
  out << line;
}

void write_forecast(const CaptureForecast& f, JsonWriter& json) {
  json.begin_object();
  json.member("tokens", f.tokens);
  json.member("seconds", f.seconds());
  json.member("read_seconds", f.read_seconds);
  json.member("forward_seconds", f.forward_seconds);
  json.member("spill_seconds", f.spill_seconds);
  json.member("gram_seconds", f.gram_seconds);
  json.member("store_seconds", f.store_seconds);
  json.member("read_bytes", f.read_bytes);
  json.member("calibration_bytes", f.calibration_bytes);
  json.member("stream_bytes", f.stream_bytes);
  json.member("layer_input_bytes", f.layer_input_bytes);
  json.member("layer_memory_bytes", f.layer_memory_bytes);
  json.end_object();
}

}  // namespace k3
