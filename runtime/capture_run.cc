// The order of things decides what a kill costs. A layer's streams and sums are brought to disk,
// then its line is added to the journal, then the files that only it read are removed; a line in
// the journal therefore always has its files behind it, and at most one layer is run twice.

#include "runtime/capture_run.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "runtime/capture_grams.h"
#include "runtime/comparable_packs.h"
#include "runtime/loaded_model.h"
#include "runtime/memory_limit.h"
#include "schema/calibration_sums.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/stopwatch.h"
#include "schema/teacher.h"
#include "schema/trace_reader.h"
#include "schema/trace_writer.h"

namespace k3 {
namespace {

constexpr double kShareOfFreeMemory = 0.9;

LayerMajorOptions model_options(const CaptureOptions& options, const std::string& path,
                                const std::string& name) {
  return {.pack_path = path,
          .name = name,
          .backend = options.backend,
          .chunk_tokens = options.chunk_tokens,
          .verify = options.verify};
}

int64_t memory_limit(const CaptureOptions& options) {
  const auto free_bytes =
      static_cast<int64_t>(static_cast<double>(available_memory_bytes()) * kShareOfFreeMemory);
  if (!options.memory_gb) return free_bytes;
  if (!(*options.memory_gb > 0 && *options.memory_gb < 1e9)) {
    throw Error("--memory-gb is ", *options.memory_gb, ", expected more than 0");
  }
  return static_cast<int64_t>(*options.memory_gb * 1e9);
}

// Besides what any comparison needs, a propagated capture multiplies both models' inputs.
void check_propagated(const PackReader& source, const PackReader& propagated) {
  check_comparable(source, propagated);
  check_same_basis(source, propagated);
  for (int64_t layer = 0; layer <= std::ssize(source.config().layers); ++layer) {
    const std::vector<SharedInput> read = matrix_inputs(source.config(), layer);
    const std::vector<SharedInput> other = matrix_inputs(propagated.config(), layer);
    const bool same_inputs = std::equal(read.begin(), read.end(), other.begin(), other.end(),
                                        [](const SharedInput& a, const SharedInput& b) {
                                          return a.name == b.name && a.width == b.width;
                                        });
    if (!same_inputs) throw Error(propagated.path(), ": has other widths than ", source.path());
  }
  const SourceHashes ours(source);
  const SourceHashes theirs(propagated);
  const size_t tensors = source.index().content.tensors.size();
  bool same = tensors == propagated.index().content.tensors.size();
  for (size_t i = 0; same && i < tensors; ++i) same = ours.of_tensor(i) == theirs.of_tensor(i);
  if (!same) {
    throw Error(propagated.path(), ": was compiled from another checkpoint than ", source.path());
  }
}

std::string work_folder(const CaptureOptions& options) {
  const std::string& output = !options.calibration_path.empty() ? options.calibration_path
                              : !options.teacher_path.empty()   ? options.teacher_path
                                                                : options.trace_path;
  return output + ".work";
}

}  // namespace

CaptureRun::CaptureRun(const CaptureOptions& options, std::ostream& progress)
    : options_(options),
      progress_(progress),
      source_(model_options(options, options.pack_path, "source")),
      source_hashes_(source_.pack()),
      layers_(std::ssize(source_.config().layers)),
      end_layer_(std::min(options.last_layer.value_or(layers_ - 1), layers_) + 1),
      memory_bytes_(memory_limit(options)),
      folder_(work_folder(options)) {
  if (!options.propagated_path.empty()) {
    propagated_ = std::make_unique<LayerMajorModel>(
        model_options(options, options.propagated_path, "propagated"));
    check_propagated(source_.pack(), propagated_->pack());
  }
  text_ =
      read_capture_text(options.text_paths, load_tokenizer(source_.pack()), options.window_tokens);
  check_options();
  check_memory();
  index_.model_payload_xxh3 = source_.pack().payload_xxh3();
  if (propagated_) index_.propagated_payload_xxh3 = propagated_->pack().payload_xxh3();
  index_.window_tokens = options.window_tokens;
  index_.texts = text_.files;
  index_.documents = text_.halves;

  std::error_code failed;
  std::filesystem::create_directory(folder_, failed);
  if (failed) throw Error(folder_, ": cannot create the work folder: ", failed.message());
  journal_ = std::make_unique<CaptureJournal>(folder_ + "/journal", journal_key());
  int64_t end_bytes = kExtentAlignment;
  for (const CapturedStage& stage : journal_->stages()) {
    index_.inputs.insert(index_.inputs.end(), stage.inputs.begin(), stage.inputs.end());
    end_bytes = stage.end_bytes;
    resumed_layers_ += stage.layer >= 0 ? 1 : 0;
  }
  writer_ = std::make_unique<CalibrationWriter>(folder_ + "/calibration", end_bytes);
}

void CaptureRun::check_options() const {
  if (end_layer_ < 1 || end_layer_ > layers_ || options_.first_layer < 0 ||
      options_.first_layer >= end_layer_) {
    throw Error("--first-layer and --last-layer are ", options_.first_layer, " and ",
                options_.last_layer.value_or(layers_ - 1), ", expected 0 to ", layers_ - 1,
                ", ascending");
  }
  if (!options_.teacher_path.empty() && !captures_all_layers()) {
    throw Error("--teacher needs all layers, --last-layer leaves some out");
  }
  const auto has_experts = [this] {
    for (int64_t layer = 0; layer < end_layer_; ++layer) {
      if (source_.pack().bank(layer) != nullptr) return true;
    }
    return false;
  };
  if (!options_.trace_path.empty() && !has_experts()) {
    throw Error(source_.pack().path(),
                ": no layer that runs has experts: there is nothing to trace");
  }
  const int64_t vocab = source_.config().vocab_size;
  if (options_.top_k < 1 || options_.top_k > vocab) {
    throw Error("--top-k is ", options_.top_k, ", expected 1 to ", vocab, ", the vocabulary");
  }
  if (options_.calibration_path.empty()) return;
  for (const CalibrationHalf half : kCalibrationHalves) {
    if (text_.halves[static_cast<size_t>(half)].tokens != 0) continue;
    throw Error(options_.text_paths.front(), ": none of the ", text_.documents(),
                " documents falls into the ", kCalibrationHalfNames[static_cast<size_t>(half)],
                " half (one in four is for selecting, by its hash); give more documents");
  }
}

// What every layer needs at the least.
void CaptureRun::check_memory() const {
  const auto expect = [this](int64_t bytes, const std::string& what) {
    if (bytes <= memory_bytes_) return;
    throw Error("--memory-gb is ", static_cast<double>(memory_bytes_) / 1e9, ", ", what, " needs ",
                static_cast<double>(bytes) / 1e9);
  };
  for (int64_t layer = 0; layer < end_layer_; ++layer) {
    const std::string name = "layer " + std::to_string(layer);
    expect(source_.layer_bytes(layer, text_.longest_sequence(), false), name);
    if (propagated_) expect(propagated_->layer_bytes(layer, text_.longest_sequence(), false), name);
    for (const SharedInput& input : inputs_of(layer)) {
      expect(least_gram_bytes(input.width), "the Gram matrix of " + input.name);
    }
  }
  if (!options_.teacher_path.empty()) {
    expect(text_.tokens() * (8 * options_.top_k + 16), "the teacher");
  }
}

uint64_t CaptureRun::journal_key() const {
  std::ostringstream key;
  key << "1 " << options_.window_tokens << ' ' << hex_digits(index_.model_payload_xxh3) << ' '
      << (index_.propagated_payload_xxh3 ? hex_digits(*index_.propagated_payload_xxh3) : "none")
      << ' ' << hex_digits(index_.text_xxh3()) << ' ' << hex_digits(index_.split_xxh3()) << ' '
      << options_.backend << ' ' << options_.first_layer << ' ' << end_layer_ << ' '
      << options_.calibration_path.empty() << ' ' << options_.trace_path.empty();
  const std::string text = key.str();
  return xxh3(std::as_bytes(std::span(text)));
}

std::vector<SharedInput> CaptureRun::inputs_of(int64_t layer) const {
  if (options_.calibration_path.empty() || layer < options_.first_layer) return {};
  return matrix_inputs(source_.config(), layer);
}

int64_t CaptureRun::input_bytes(int64_t layer) const {
  int64_t bytes = 0;
  for (const SharedInput& input : inputs_of(layer)) {
    bytes += text_.tokens() * input.width * static_cast<int64_t>(sizeof(float));
  }
  return propagated_ ? 2 * bytes : bytes;
}

// Whether the rows of the layer's inputs have a place in memory: beside all that the layer takes,
// for a layer whose experts are read again and again costs more than rows on disk.
bool CaptureRun::fits_inputs(int64_t layer) const {
  int64_t most = 0;
  if (layer < layers_) {
    most = source_.layer_bytes(layer, text_.longest_sequence(), true);
    if (propagated_) {
      most = std::max(most, propagated_->layer_bytes(layer, text_.longest_sequence(), true));
    }
  }
  for (const SharedInput& input : inputs_of(layer)) {
    most = std::max(most, least_gram_bytes(input.width));
  }
  return input_bytes(layer) <= memory_bytes_ - most;
}

std::unique_ptr<InputRecorder> CaptureRun::make_recorder(int64_t layer,
                                                         const std::string& name) const {
  return std::make_unique<InputRecorder>(inputs_of(layer), text_.tokens(),
                                         fits_inputs(layer) ? "" : folder_, name);
}

// The trace of one layer, whole as soon as the layer is in the journal.
std::string CaptureRun::trace_part(int64_t layer) const {
  return folder_ + "/trace." + std::to_string(layer);
}

// Null when nothing is traced or the layer has no experts.
std::unique_ptr<TraceRecorder> CaptureRun::make_trace(int64_t layer) const {
  if (options_.trace_path.empty() || source_.pack().bank(layer) == nullptr) return nullptr;
  auto trace = std::make_unique<TraceRecorder>(trace_part(layer), source_.pack(), source_.config(),
                                               false, TraceOrder::kLayerMajor);
  for (const TraceDocument& document : text_.sources) trace->add_document(document);
  std::vector<TraceToken> tokens;
  for (const CaptureSequence& sequence : text_.sequences) {
    for (size_t position = 0; position < sequence.ids.size(); ++position) {
      tokens.push_back({static_cast<uint32_t>(sequence.document), static_cast<uint32_t>(position),
                        TracePhase::kPrefill});
    }
  }
  trace->announce(tokens, {});
  return trace;
}

// The layers' blocks one after the other.
void CaptureRun::write_trace() const {
  const std::string unfinished = options_.trace_path + ".unfinished";
  std::error_code failed;
  try {
    std::optional<TraceWriter> whole;
    for (int64_t layer = 0; layer < end_layer_; ++layer) {
      if (source_.pack().bank(layer) == nullptr) continue;
      TraceReader part(trace_part(layer));
      if (!whole) whole.emplace(unfinished, part.header());
      TraceBlockHeader place;
      for (std::vector<std::byte> stored; part.next_stored(place, stored);) {
        whole->write_stored(place, stored);
      }
      if (part.is_cut()) throw Error(part.path(), ": was cut since its layer was finished");
    }
    whole->finish(text_.tokens());
    std::filesystem::rename(unfinished, options_.trace_path, failed);
    if (failed) throw Error(options_.trace_path, ": cannot be written: ", failed.message());
  } catch (...) {
    std::filesystem::remove(unfinished, failed);
    throw;
  }
}

std::vector<CalibrationInput> CaptureRun::write_inputs(int64_t layer, const InputRecorder& source,
                                                       const InputRecorder* propagated) {
  const int64_t memory = memory_bytes_ - (fits_inputs(layer) ? input_bytes(layer) : 0);
  const InputRecorder& read = propagated != nullptr ? *propagated : source;
  std::vector<CalibrationInput> written;
  GramCost gram;
  for (size_t i = 0; i < source.inputs().size(); ++i) {
    const SharedInput& shared = source.inputs()[i];
    CalibrationInput input{.name = shared.name,
                           .width = shared.width,
                           .matrices = {},
                           .steps = {},
                           .source_steps = {},
                           .sums = {}};
    for (const std::string& name : shared.matrices) {
      const PackTensor* tensor = source_.pack().find(name);
      K3_CHECK(tensor != nullptr);
      const auto position = tensor - source_.pack().index().content.tensors.data();
      input.matrices.push_back({name, source_hashes_.of_tensor(static_cast<size_t>(position))});
    }
    const std::vector<int16_t> steps = read.exponents(i);
    const GramSide x{&read.rows(i), steps};
    const GramPlace triangle{shared.width, true};
    input.steps = writer_->add(compress_steps(steps));
    std::vector<int16_t> source_steps;
    if (propagated != nullptr) {
      source_steps = source.exponents(i);
      input.source_steps = writer_->add(compress_steps(source_steps));
    }
    const GramSide y{&source.rows(i), source_steps};
    for (size_t half = 0; half < input.sums.size(); ++half) {
      const RowRange tokens = text_.rows[half];
      CalibrationSums& sums = input.sums[half];
      sums.gram = write_gram(triangle, x, x, tokens, memory, *writer_, gram);
      if (propagated == nullptr) continue;
      sums.cross = write_gram({shared.width, false}, y, x, tokens, memory, *writer_, gram);
      sums.source_gram = write_gram(triangle, y, y, tokens, memory, *writer_, gram);
    }
    written.push_back(std::move(input));
  }
  cost_.gram_seconds += gram.seconds;
  cost_.gram_products += gram.products;
  cost_.store_seconds += gram.store_seconds;
  cost_.stored_sums += gram.sums;
  cost_.stored_bytes += gram.bytes;
  return written;
}

void CaptureRun::run_embedding() {
  source_.embed(text_, folder_, cost_);
  if (propagated_) propagated_->embed(text_, folder_, cost_);
  journal_->add({.layer = -1, .end_bytes = writer_->end_bytes()});
}

void CaptureRun::run_layer(int64_t layer) {
  const Stopwatch watch;
  const int64_t memory = memory_bytes_ - (fits_inputs(layer) ? input_bytes(layer) : 0);
  const auto source = make_recorder(layer, "source");
  {
    const auto trace = make_trace(layer);
    source_.run_layer(layer, text_, source.get(), trace.get(), memory, cost_);
    if (trace) trace->finish();
  }
  std::unique_ptr<InputRecorder> propagated;
  if (propagated_) {
    propagated = make_recorder(layer, "propagated");
    propagated_->run_layer(layer, text_, propagated.get(), nullptr, memory, cost_);
  }
  CapturedStage stage{.layer = layer};
  stage.inputs = write_inputs(layer, *source, propagated.get());
  stage.end_bytes = writer_->end_bytes();
  writer_->sync();
  journal_->add(stage);
  source_.drop_input();
  if (propagated_) propagated_->drop_input();
  index_.inputs.insert(index_.inputs.end(), stage.inputs.begin(), stage.inputs.end());
  report_layer(layer, watch.seconds());
}

void CaptureRun::run_output() {
  const auto source = make_recorder(layers_, "source");
  Teacher teacher{.model_payload_xxh3 = index_.model_payload_xxh3,
                  .text_xxh3 = index_.text_xxh3(),
                  .vocab_size = source_.config().vocab_size,
                  .top_k = options_.top_k};
  LayerMajorModel::OnLogits on_logits;
  if (!options_.teacher_path.empty()) {
    on_logits = [&teacher](int64_t document, int32_t id, const float* logits) {
      add_prediction(teacher, id, static_cast<int32_t>(document), logits);
    };
  }
  source_.finish(text_, source.get(), on_logits, cost_);
  std::unique_ptr<InputRecorder> propagated;
  if (propagated_) {
    propagated = make_recorder(layers_, "propagated");
    propagated_->finish(text_, propagated.get(), {}, cost_);
  }
  const std::vector<CalibrationInput> head = write_inputs(layers_, *source, propagated.get());
  index_.inputs.insert(index_.inputs.end(), head.begin(), head.end());
  if (!options_.teacher_path.empty()) write_teacher(teacher, options_.teacher_path);
}

void CaptureRun::run() {
  const int64_t done = std::ssize(journal_->stages());  // the embedding, then layers
  if (done == 0) {
    run_embedding();
  } else {
    source_.open_streams(text_, folder_);
    if (propagated_) propagated_->open_streams(text_, folder_);
  }
  for (int64_t layer = std::max<int64_t>(0, done - 1); layer < end_layer_; ++layer) {
    run_layer(layer);
  }
  if (captures_all_layers()) run_output();
  if (!options_.trace_path.empty()) write_trace();
  if (!options_.calibration_path.empty()) writer_->finish(index_, options_.calibration_path);
  writer_.reset();
  journal_.reset();
  std::filesystem::remove_all(folder_);
}

void CaptureRun::report_layer(int64_t layer, double seconds) const {
  if (options_.quiet) return;
  char line[160];
  std::snprintf(line, sizeof line,
                "layer %lld of %lld: %.1f s, %.0f tokens/s; about %.0f s to go\n",
                static_cast<long long>(layer) + 1, static_cast<long long>(end_layer_), seconds,
                static_cast<double>(text_.tokens()) / seconds,
                seconds * static_cast<double>(end_layer_ - layer - 1));
  progress_ << line << std::flush;
}

}  // namespace k3
