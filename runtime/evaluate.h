// Quality of a pack on text: how well it predicts, and how far it is from another pack.
//
// The protocol: each document is opened by the beginning-of-sequence token if the tokenizer asks
// for one; a file's tokens are cut into windows, each run from a fresh state; every position
// predicts the next token of the file, the last one of a window the first of the next. Tokens
// behind the last full window are not used (a file shorter than one window is one window). All
// packs see the same ids, so differences are the weights' alone.
//
// Intervals come from resampling whole documents: tokens of one document are not independent, and
// an interval over tokens would be several times too narrow.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/forward.h"
#include "runtime/trace_recorder.h"

namespace k3 {

struct EvalText {
  std::string name;
  uint64_t xxh3 = 0;                            // of the file
  std::vector<std::vector<int32_t>> documents;  // token ids
  std::vector<uint64_t> document_xxh3 = {};     // of each document's text
};

// A mean with the 2.5 and 97.5 percentiles of its bootstrap distribution.
struct Estimate {
  double mean = 0;
  double low = 0;
  double high = 0;
};

// Distances to the other pack, in nats: KL(other || pack) over the full vocabulary.
struct Comparison {
  Estimate kl;
  double kl_median = 0;
  double kl_p99 = 0;
  double kl_max = 0;
  Estimate top1_agreement;          // share of positions with the same most likely token
  Estimate other_nll;               // of the other pack on the same positions
  double flipped_experts = 0;       // share of chosen experts that the other pack did not choose
  double flipped_token_layers = 0;  // share of (token, layer) with any such expert
  // Of the experts that the other pack chose and this one cannot, because it does not have them or
  // a plan masks them:
  double missing_mass = 0;  // their share of the other pack's routing weights
  double all_present = 1;   // share of (token, layer) without one
};

struct EvalResult {
  std::string name;
  uint64_t text_xxh3 = 0;
  int64_t documents = 0;
  int64_t windows = 0;
  int64_t positions = 0;  // predictions
  Estimate nll;           // nats per token
  std::optional<Comparison> comparison;
};

struct EvalOptions {
  int64_t window_tokens = 256;
  int64_t resamples = 1000;
  uint64_t seed = 0;
};

// Evaluates one text. `other` may be null; it has the same vocabulary. `on_progress` gets the
// positions done. `trace`, if not null, records what `forward` routes.
EvalResult evaluate(Forward& forward, Forward* other, const EvalText& text,
                    const EvalOptions& options, const std::function<void(int64_t)>& on_progress,
                    TraceRecorder* trace = nullptr);

}  // namespace k3
