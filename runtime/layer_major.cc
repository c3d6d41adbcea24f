#include "runtime/layer_major.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "runtime/observers.h"
#include "schema/error.h"
#include "schema/memory_need.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

// Tokens of a sequence that pass together.
struct Chunk {
  int64_t document = 0;
  int64_t position = 0;  // in the sequence
  int64_t row = 0;
  std::span<const int32_t> ids;
  int64_t tokens() const { return std::ssize(ids); }
};

}  // namespace

LayerMajorModel::LayerMajorModel(const LayerMajorOptions& options)
    : model_(options.pack_path, options.backend, options.chunk_tokens, options.verify),
      name_(options.name),
      stream_(model_.forward().make_stream()) {}

int64_t LayerMajorModel::layer_bytes(int64_t layer, int64_t longest_sequence,
                                     bool all_experts) const {
  int64_t bytes =
      2 * model_.forward().buffer_bytes();  // the stream counted twice stands for scratch
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  for (const PackTensor& tensor : pack().index().content.tensors) {
    if (tensor.name.starts_with(prefix)) bytes += resident_bytes(tensor);
  }
  if (const PackBank* bank = pack().bank(layer)) {
    const int64_t experts = all_experts ? std::ssize(bank->experts) : config().experts_per_token;
    bytes += experts * expert_slot_bytes(config(), *bank);
  }
  constexpr int64_t kFloat = 4;
  if (config().layers[static_cast<size_t>(layer)].attention == AttentionKind::kKda) {
    bytes += kFloat * config().kda_width() * (config().kda_head_dim + 3 * config().conv_kernel);
  } else {
    bytes += kFloat * longest_sequence * (config().kv_lora_rank + config().qk_extra_dim);
  }
  return bytes;
}

template <class Read>
void LayerMajorModel::timed_read(const Read& read, CaptureCost& cost) {
  const int64_t before = model_.bytes_read();
  {
    const ScopedSeconds time(cost.read_seconds);
    read();
  }
  cost.weight_bytes += model_.bytes_read() - before;
}

template <class Work>
void LayerMajorModel::for_each_chunk(const CaptureText& text, const Work& work) const {
  for (const CaptureSequence& sequence : text.sequences) {
    const std::span<const int32_t> ids(sequence.ids);
    for (int64_t position = 0; position < std::ssize(ids);) {
      const int64_t tokens = std::min(model_.forward().max_tokens(), std::ssize(ids) - position);
      work(Chunk{.document = sequence.document,
                 .position = position,
                 .row = sequence.first_row + position,
                 .ids = ids.subspan(static_cast<size_t>(position), static_cast<size_t>(tokens))});
      position += tokens;
    }
  }
}

void LayerMajorModel::open_streams(const CaptureText& text, const std::string& folder) {
  streams_ = std::make_unique<StreamSpill>(folder, name_, config(), text.tokens());
}

void LayerMajorModel::embed(const CaptureText& text, const std::string& folder, CaptureCost& cost) {
  open_streams(text, folder);
  streams_->begin_embedding();
  timed_read([this] { model_.hold_embedding(); }, cost);
  for_each_chunk(text, [&](const Chunk& chunk) {
    model_.forward().embed(chunk.ids, stream_);
    streams_->write(chunk.row, chunk.tokens(), stream_);
  });
  streams_->sync();
  release();
}

void LayerMajorModel::run_layer(int64_t layer, const CaptureText& text, InputRecorder* recorder,
                                TraceRecorder* trace, int64_t memory_bytes, CaptureCost& cost) {
  const PackBank* bank = pack().bank(layer);
  const int64_t least_experts =
      bank == nullptr ? 0 : config().experts_per_token * expert_slot_bytes(config(), *bank);
  const int64_t expert_bytes =
      memory_bytes - layer_bytes(layer, text.longest_sequence(), false) + least_experts;
  timed_read([&] { model_.hold_layer(layer, expert_bytes); }, cost);
  streams_->begin_layer(layer);
  const int64_t read_before = model_.bytes_read();
  const int64_t moved_before = streams_->bytes_moved();
  std::vector<RunObserver*> watching;
  if (recorder != nullptr) watching.push_back(recorder);
  if (trace != nullptr) watching.push_back(trace);
  Observers observers(std::move(watching));
  LayerState state;
  for_each_chunk(text, [&](const Chunk& chunk) {
    if (chunk.position == 0) state = fresh_layer_state(config(), layer);
    {
      const ScopedSeconds time(cost.spill_seconds);
      streams_->read(chunk.row, chunk.tokens(), stream_);
    }
    if (recorder != nullptr) recorder->at_row(chunk.row);
    {
      const ScopedSeconds time(cost.forward_seconds);
      model_.forward().run_layer(layer, chunk.tokens(), stream_, chunk.position, state, &observers);
    }
    const ScopedSeconds time(cost.spill_seconds);
    streams_->write(chunk.row, chunk.tokens(), stream_);
  });
  // Experts that memory did not hold were read while tokens passed.
  cost.weight_bytes += model_.bytes_read() - read_before;
  cost.spill_bytes += streams_->bytes_moved() - moved_before;
  cost.forward_products += products_of_layer(config(), layer) * text.tokens();
  const ScopedSeconds time(cost.spill_seconds);
  streams_->sync();
  release();
}

void LayerMajorModel::finish(const CaptureText& text, InputRecorder* recorder,
                             const OnLogits& on_logits, CaptureCost& cost) {
  timed_read([this] { model_.hold_output(); }, cost);
  streams_->begin_layer(std::ssize(config().layers));
  const auto vocab = static_cast<size_t>(config().vocab_size);
  std::vector<float> logits;
  for_each_chunk(text, [&](const Chunk& chunk) {
    streams_->read(chunk.row, chunk.tokens(), stream_);
    if (recorder != nullptr) recorder->at_row(chunk.row);
    const float* x = model_.forward().finish(chunk.tokens(), stream_, recorder);
    if (!on_logits) return;
    logits.resize(chunk.ids.size() * vocab);
    model_.forward().multiply_head(x, chunk.tokens(), logits.data());
    for (size_t t = 0; t < chunk.ids.size(); ++t) {
      on_logits(chunk.document, chunk.ids[t], logits.data() + t * vocab);
    }
  });
  release();
}

}  // namespace k3
