// What a capture of the full-size K3 would take, from the rates that one of a smaller model had.
#pragma once

#include <cstdint>
#include <ostream>

#include "schema/json_writer.h"
#include "schema/model_config.h"

namespace k3 {

// What a capture did, by what limits it.
struct CaptureCost {
  double read_seconds = 0;  // weights, from disk to memory, hashed
  int64_t weight_bytes = 0;
  double forward_seconds = 0;
  int64_t forward_products = 0;  // multiply-adds with weights
  double spill_seconds = 0;      // streams, to disk and back
  int64_t spill_bytes = 0;
  double gram_seconds = 0;
  int64_t gram_products = 0;
  double store_seconds = 0;  // compressing and writing sums
  int64_t stored_sums = 0;
  int64_t stored_bytes = 0;
};

struct CaptureForecast {
  int64_t tokens = 0;
  double read_seconds = 0;
  double forward_seconds = 0;
  double spill_seconds = 0;
  double gram_seconds = 0;
  double store_seconds = 0;
  int64_t read_bytes = 0;
  int64_t calibration_bytes = 0;
  int64_t stream_bytes = 0;  // of the work folder: streams between layers
  int64_t layer_input_bytes =
      0;  // and the inputs of the widest layer, if memory does not hold them
  int64_t layer_memory_bytes = 0;  // the largest layer's weights, which have to fit to be read once

  double seconds() const {
    return read_seconds + forward_seconds + spill_seconds + gram_seconds + store_seconds;
  }
};

// Multiply-adds with weights that a token costs in one layer: every matrix once, and the chosen
// experts.
int64_t products_of_layer(const ModelConfig& config, int64_t layer);

// For a model of `config` and as many tokens as a capture of K3 should have: three quarters of
// them, the fit half, are 16 for each of o_proj's 12,288 inputs. The trunk is bf16, the experts
// MXFP4. What is not a product with weights (attention over long documents, recurrences) is counted
// as it came along in `cost`.
CaptureForecast forecast_capture(const CaptureCost& cost, const ModelConfig& config,
                                 int64_t tokens = 262'144);

void print_forecast(const CaptureForecast& forecast, std::ostream& out);
// An object as the value of the key that was just written.
void write_forecast(const CaptureForecast& forecast, JsonWriter& json);

}  // namespace k3
