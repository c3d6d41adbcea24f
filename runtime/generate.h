// Prompt in, tokens out: prefill in chunks, then one token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/forward.h"
#include "runtime/sampler.h"
#include "runtime/tokenizer.h"

namespace k3 {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  SamplingOptions sampling = {};
  std::vector<std::string> stop = {};  // generation ends before the first of these
  std::vector<int32_t> end_ids = {};  // generation ends at one of these; it is not part of the text
};

struct Generation {
  std::vector<int32_t> ids;   // the new tokens, an end id included
  std::string text;           // their text, up to the stop string
  std::string finish_reason;  // "length", "end" or "stop"
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

// What observers of a whole run get: the chunk's logits, when wanted, after the chunk's layers.
class RunObserver : public ForwardObserver {
 public:
  virtual bool wants_logits() const { return true; }
  virtual void on_logits(int64_t tokens, const float* logits) = 0;
};

// Feeds `prompt` (may be empty when `state` already holds tokens), then samples. Every sampled
// token is also fed, so `state` stands after the last one and a run that continues from it is the
// same as one that was never cut. `on_text` gets the text as it becomes final: never half a
// character, never the start of what may become a stop string.
Generation generate(Forward& forward, SequenceState& state, const Tokenizer& tokenizer,
                    std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<void(std::string_view)>& on_text,
                    RunObserver* observer = nullptr);

}  // namespace k3
