#include "runtime/generate.h"

#include <algorithm>

#include "runtime/stop_strings.h"
#include "runtime/utf8_stream.h"
#include "schema/error.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

// Feeds tokens in chunks of the size that `forward` was made for.
void feed(Forward& forward, SequenceState& state, std::span<const int32_t> ids,
          std::vector<float>& logits, RunObserver* observer) {
  while (!ids.empty()) {
    const size_t count = std::min(ids.size(), static_cast<size_t>(forward.max_tokens()));
    forward.run(ids.first(count), state, logits.empty() ? nullptr : logits.data(), observer);
    if (!logits.empty()) observer->on_logits(static_cast<int64_t>(count), logits.data());
    ids = ids.subspan(count);
  }
}

}  // namespace

Generation generate(Forward& forward, SequenceState& state, const Tokenizer& tokenizer,
                    std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<void(std::string_view)>& on_text, RunObserver* observer) {
  Generation result;
  Sampler sampler(options.sampling);
  StopStrings stops(options.stop);
  Utf8Stream utf8;
  std::vector<float> logits;  // [chunk, vocab], only for an observer that wants them: at K3's
                              // vocabulary a chunk's logits are 42 MB
  if (observer != nullptr && observer->wants_logits()) {
    logits.resize(static_cast<size_t>(forward.max_tokens() * forward.config().vocab_size));
  }
  const auto emit = [&](const std::string& text) {
    if (text.empty()) return;
    result.text += text;
    on_text(text);
  };

  const Stopwatch prefill;
  feed(forward, state, prompt, logits, observer);
  result.prefill_seconds = prefill.seconds();
  if (state.last_logits.empty()) {
    throw Error("the prompt has no token: give a prompt, ids, or a state to continue from");
  }

  const Stopwatch decode;
  result.finish_reason = "length";
  while (static_cast<int64_t>(result.ids.size()) < options.max_new_tokens) {
    const int32_t id = sampler.sample(state.last_logits, state.positions());
    result.ids.push_back(id);
    feed(forward, state, {&id, 1}, logits, observer);
    if (std::find(options.end_ids.begin(), options.end_ids.end(), id) != options.end_ids.end()) {
      result.finish_reason = "end";
      break;
    }
    emit(stops.add(utf8.feed(tokenizer.token_bytes(id))));
    if (stops.found()) {
      result.finish_reason = "stop";
      break;
    }
  }
  if (!stops.found()) {
    emit(stops.add(utf8.flush()));
    if (!stops.found()) emit(stops.finish());
  }
  result.decode_seconds = decode.seconds();
  return result;
}

}  // namespace k3
