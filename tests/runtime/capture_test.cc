// What a capture must be: the same numbers as a plain forward pass, whatever memory, chunks and
// threads it had, and of the files it was given alone.

#include "runtime/capture.h"

#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>

#include "compiler/trace_routing.h"
#include "kernels/gram.h"
#include "passes/expert_scores.h"
#include "runtime/capture_text.h"
#include "runtime/loaded_model.h"
#include "runtime/trace_recorder.h"
#include "schema/calibration.h"
#include "schema/hash.h"
#include "schema/teacher.h"
#include "tests/runtime/packs.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

// Eight documents of a few words, both halves among them.
std::string made_texts() {
  std::string lines;
  for (int i = 0; i < 8; ++i) {
    lines += "{\"text\": \"And the " + std::string(static_cast<size_t>(i + 1), 'm') +
             " of the king went up unto the house, " + std::to_string(i) + " times.\"}\n";
  }
  return lines;
}

double json_number(const std::string& json, const std::string& key) {
  return std::stod(json.substr(json.find("\"" + key + "\": ") + key.size() + 4));
}

class Capture : public testing::TestWithParam<const char*> {
 protected:
  Capture() : text_(folder_.write("calibration-made.jsonl", made_texts())) {}

  CaptureOptions options(const std::string& name) const {
    return {.pack_path = test::pack_path(GetParam()),
            .text_paths = {text_},
            .calibration_path = folder_.path(name + ".k3cal"),
            .propagated_path = {},
            .teacher_path = folder_.path(name + ".k3teach"),
            .top_k = 5,
            .quiet = true};
  }
  std::string captured(const CaptureOptions& options) const {
    std::ostringstream out;
    std::ostringstream progress;
    capture(options, out, progress);
    EXPECT_EQ(progress.str(), "");
    EXPECT_FALSE(std::filesystem::exists(options.calibration_path + ".work"));
    return out.str();
  }
  std::vector<std::byte> calibration(const std::string& name) const {
    return file_bytes(folder_.path(name + ".k3cal"));
  }
  std::vector<std::byte> teacher(const std::string& name) const {
    return file_bytes(folder_.path(name + ".k3teach"));
  }

  TempFolder folder_;
  std::string text_;
};

// Every input of every token of a plain forward pass.
class EveryInput final : public ForwardObserver {
 public:
  void on_layer(int64_t, int64_t, const float*) override {}
  void on_routing(int64_t, int64_t, const int32_t*, const float*) override {}
  void on_matrix_input(int64_t layer, MatrixInput input, int64_t tokens, int64_t width,
                       int64_t stride, const float* x) override {
    std::vector<float>& rows = rows_[{layer, input}];
    for (int64_t t = 0; t < tokens; ++t)
      rows.insert(rows.end(), x + t * stride, x + t * stride + width);
  }
  const std::vector<float>& rows(int64_t layer, MatrixInput input) { return rows_[{layer, input}]; }

 private:
  std::map<std::pair<int64_t, MatrixInput>, std::vector<float>> rows_;
};

TEST_P(Capture, SumsAndPredictionsAreThoseOfATokenMajorPass) {
  captured(options("layers"));
  LoadedModel model({.pack_path = test::pack_path(GetParam())});
  const CaptureText text = read_capture_text({text_}, model.tokenizer(), 0);
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  Teacher want{.model_payload_xxh3 = model.pack().payload_xxh3(),
               .vocab_size = model.config().vocab_size,
               .top_k = 5};
  std::array<EveryInput, 2> seen;  // by half
  for (const CaptureSequence& sequence : text.sequences) {
    const bool fits = sequence.first_row < text.rows[0].end;
    SequenceState state(model.config());
    std::vector<float> logits(sequence.ids.size() * vocab);
    model.forward().run(sequence.ids, state, logits.data(), &seen[fits ? 0 : 1]);
    for (size_t t = 0; t < sequence.ids.size(); ++t) {
      add_prediction(want, sequence.ids[t], static_cast<int32_t>(sequence.document),
                     logits.data() + t * vocab);
    }
  }

  const Teacher teacher = read_teacher(folder_.path("layers.k3teach"));
  EXPECT_EQ(teacher.token_ids, want.token_ids);
  EXPECT_EQ(teacher.document_ids, want.document_ids);
  EXPECT_EQ(teacher.top_ids, want.top_ids);
  EXPECT_EQ(teacher.top_logits, want.top_logits);
  EXPECT_EQ(teacher.log_sum_exp, want.log_sum_exp);

  const CalibrationReader reader(folder_.path("layers.k3cal"));
  size_t inputs = 0;
  for (int64_t layer = 0; layer <= std::ssize(model.config().layers); ++layer) {
    for (const SharedInput& shared : matrix_inputs(model.config(), layer)) {
      SCOPED_TRACE(shared.name);
      ++inputs;
      const CalibrationInput& input = *reader.find(shared.matrices.front());
      EXPECT_EQ(input.name, shared.name);
      const GramPlace place{shared.width, true};
      const std::vector<int16_t> steps = reader.steps(input);
      for (size_t half = 0; half < 2; ++half) {
        const std::vector<float>& rows = seen[half].rows(layer, shared.kind);
        ASSERT_EQ(std::ssize(rows), reader.index().documents[half].tokens * shared.width);
        std::vector<double> want_sums(static_cast<size_t>(place.row_offset(shared.width)));
        std::vector<float> stepped(rows.size());  // what the codes stand for
        for (size_t i = 0; i < rows.size(); ++i) {
          const int step = steps[i % static_cast<size_t>(shared.width)];
          stepped[i] = static_cast<float>(exact_channel_code(rows[i], step) * power_of_two(step));
        }
        reference::add_gram(place, stepped.data(), stepped.data(),
                            reader.index().documents[half].tokens, want_sums.data());
        std::vector<double> gram(static_cast<size_t>(shared.width * shared.width));
        reader.gram(input, kCalibrationHalves[half], gram);
        size_t at = 0;
        for (int64_t r = 0; r < shared.width; ++r) {
          for (int64_t c = r; c < shared.width; ++c, ++at) {
            ASSERT_EQ(gram[static_cast<size_t>(r * shared.width + c)], want_sums[at])
                << r << "," << c;
          }
        }
      }
    }
  }
  EXPECT_EQ(inputs, reader.index().inputs.size());
}

TEST_P(Capture, TracesTheRoutingOfATokenMajorPass) {
  CaptureOptions traced = options("traced");
  traced.trace_path = folder_.path("layers.k3trace");
  traced.window_tokens = 7;
  traced.chunk_tokens = 3;
  captured(traced);
  LoadedModel model({.pack_path = test::pack_path(GetParam())});
  const CaptureText text = read_capture_text({text_}, model.tokenizer(), 7);
  const std::string path = folder_.path("tokens.k3trace");
  TraceRecorder trace(path, model.pack(), model.config(), false);
  for (const TraceDocument& document : text.sources) trace.add_document(document);
  for (const CaptureSequence& sequence : text.sequences) {
    std::vector<TraceToken> tokens(sequence.ids.size());
    for (size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = {static_cast<uint32_t>(sequence.document), static_cast<uint32_t>(t),
                   TracePhase::kPrefill};
    }
    trace.announce(tokens, {});
    SequenceState state(model.config());
    model.forward().run(sequence.ids, state, nullptr, &trace);
  }
  trace.finish();
  const RoutingTable got = load_routing({&traced.trace_path, 1});
  const RoutingTable want = load_routing({&path, 1});
  EXPECT_EQ(got.header, want.header);
  EXPECT_EQ(got.documents, want.documents);
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(std::ssize(got.tokens), text.tokens());
  EXPECT_EQ(got.incomplete_tokens, 0);
  EXPECT_TRUE(got.cut.empty());
  for (size_t t = 0; t < got.tokens.size(); ++t) {
    EXPECT_EQ(got.documents[got.tokens[t].document], want.documents[want.tokens[t].document]);
    EXPECT_EQ(got.tokens[t].position, want.tokens[t].position);
  }
  const RoutingSums sums = sum_routing({&traced.trace_path, 1});
  const RoutingSums whole = sum_routing({&path, 1});
  for (size_t layer = 0; layer < sums.layers.size(); ++layer) {
    EXPECT_EQ(sums.layers[layer].contributions, whole.layers[layer].contributions);
  }
}

TEST_P(Capture, ThreadsChunksAndMemoryDoNotShow) {
  CaptureOptions other = options("plain");
  other.json = true;
  const std::string plain = captured(other);
  other = options("single");
  other.chunk_tokens = 3;
  tbb::task_arena(1).execute([&] { captured(other); });
  EXPECT_EQ(calibration("single"), calibration("plain"));
  EXPECT_EQ(teacher("single"), teacher("plain"));
  // The least memory there is: rows go to disk, experts are read again and again.
  other = options("tight");
  other.json = true;
  other.memory_gb = 0.001;
  std::string said;
  while (true) {
    const std::string message = thrown_message([&] { said = captured(other); });
    const size_t needs = message.find("needs ");
    if (message == "no error") break;
    ASSERT_TRUE(message.starts_with("--memory-gb ")) << message;
    ASSERT_NE(needs, std::string::npos) << message;
    other.memory_gb = std::stod(message.substr(needs + 6)) + 1e-6;
  }
  EXPECT_EQ(calibration("tight"), calibration("plain"));
  EXPECT_EQ(teacher("tight"), teacher("plain"));
  if (std::string(GetParam()).starts_with("odd")) {  // the other banks fit beside a Gram matrix
    EXPECT_GT(json_number(said, "weight_bytes"), json_number(plain, "weight_bytes"));
  }
}

TEST_P(Capture, APackPropagatedAgainstItselfHasOneMatrixThreeTimes) {
  CaptureOptions twice = options("twice");
  twice.propagated_path = twice.pack_path;
  captured(twice);
  const CalibrationReader reader(folder_.path("twice.k3cal"));
  EXPECT_EQ(*reader.index().propagated_payload_xxh3, reader.index().model_payload_xxh3);
  for (const CalibrationInput& input : reader.index().inputs) {
    const auto entries = static_cast<size_t>(input.width * input.width);
    std::vector<double> gram(entries);
    std::vector<double> other(entries);
    for (const CalibrationHalf half : kCalibrationHalves) {
      reader.gram(input, half, gram);
      reader.cross(input, half, other);
      EXPECT_EQ(other, gram);
      reader.source_gram(input, half, other);
      EXPECT_EQ(other, gram);
    }
  }
}

TEST_P(Capture, OneLayersCaptureIsItsPartOfTheWhole) {
  captured(options("whole"));
  CaptureOptions one = options("one");
  one.teacher_path.clear();
  one.first_layer = one.last_layer.emplace(1);
  captured(one);
  const CalibrationReader whole(folder_.path("whole.k3cal"));
  const CalibrationReader part(folder_.path("one.k3cal"));
  for (const CalibrationInput& input : part.index().inputs) {
    EXPECT_TRUE(input.name.starts_with("layers.1."));
    const CalibrationInput& same = *whole.find(input.matrices.front().name);
    EXPECT_EQ(input.sums[0].gram.front().xxh3, same.sums[0].gram.front().xxh3);
    EXPECT_EQ(input.steps.xxh3, same.steps.xxh3);
  }
}

K3_FOR_EVERY_PACK(Capture);

class NanoCapture : public testing::Test {
 protected:
  NanoCapture() : text_(folder_.write("calibration-made.jsonl", made_texts())) {}

  CaptureOptions options() const {
    return {.pack_path = test::pack_path("nano"),
            .text_paths = {text_},
            .calibration_path = folder_.path("made.k3cal"),
            .propagated_path = {},
            .teacher_path = {},
            .quiet = true};
  }
  std::string message_of(const CaptureOptions& options) const {
    std::ostringstream ignored;
    return thrown_message([&] { capture(options, ignored, ignored); });
  }

  TempFolder folder_;
  std::string text_;
};

TEST_F(NanoCapture, NamesTheTextsTheSplitAndTheWeights) {
  EXPECT_EQ(message_of(options()), "no error");
  const CalibrationReader reader(folder_.path("made.k3cal"));
  const CalibrationIndex& index = reader.index();
  ASSERT_EQ(index.texts.size(), 1u);
  EXPECT_EQ(index.texts[0].name, "calibration-made");
  EXPECT_EQ(index.texts[0].xxh3, xxh3(file_bytes(text_)));
  EXPECT_EQ(index.documents[0].xxh3.size() + index.documents[1].xxh3.size(), 8u);
  const PackReader pack(test::pack_path("nano"));
  EXPECT_EQ(index.model_payload_xxh3, pack.payload_xxh3());
  EXPECT_FALSE(reader.is_propagated());
  const std::vector<std::byte> hashes = pack.report("source_hashes");
  const PackTensor* tensor = pack.find("model.layers.3.self_attn.q_b_proj.weight");
  uint64_t hash = 0;
  std::copy_n(hashes.data() + 8 * (tensor - pack.index().content.tensors.data()), 8,
              reinterpret_cast<std::byte*>(&hash));
  EXPECT_EQ(reader.expect(tensor->name, 96, hash).name, "layers.3.query_rank");
}

TEST_F(NanoCapture, EveryWeightIsReadOnce) {
  CaptureOptions counted = options();
  counted.json = true;
  std::ostringstream out;
  capture(counted, out, out);
  const PackReader pack(test::pack_path("nano"));
  int64_t bytes = 0;
  for (const PackTensor& tensor : pack.index().content.tensors) bytes += tensor.extent.length_bytes;
  for (const PackBank& bank : pack.index().content.banks) {
    for (const PackExpert& expert : bank.experts) bytes += expert.extent.length_bytes;
  }
  EXPECT_NE(out.str().find("\"weight_bytes\": " + std::to_string(bytes) + ","), std::string::npos)
      << bytes << " in " << out.str();
}

// A teacher alone may be of texts that are too few to be split.
TEST_F(NanoCapture, WindowsStartFromAFreshState) {
  CaptureOptions windows = options();
  windows.calibration_path.clear();
  windows.teacher_path = folder_.path("made.k3teach");
  windows.text_paths = {folder_.write("calibration-one.txt", "the house of the king of the house")};
  windows.window_tokens = 4;
  windows.top_k = 3;
  EXPECT_EQ(message_of(windows), "no error");
  const Teacher teacher = read_teacher(windows.teacher_path);
  LoadedModel model({.pack_path = test::pack_path("nano")});
  ASSERT_GT(teacher.tokens(), 4);
  const std::vector<int32_t> second(
      teacher.token_ids.begin() + 4,
      teacher.token_ids.begin() + std::min<int64_t>(8, teacher.tokens()));
  SequenceState state(model.config());
  std::vector<float> logits(second.size() * static_cast<size_t>(model.config().vocab_size));
  model.forward().run(second, state, logits.data());
  Teacher want{.vocab_size = teacher.vocab_size, .top_k = 3};
  add_prediction(want, second[0], 0, logits.data());
  EXPECT_TRUE(std::equal(want.top_logits.begin(), want.top_logits.end(),
                         teacher.top_logits.begin() + 4 * 3));
}

TEST_F(NanoCapture, HeldOutTextIsRefusedUnread) {
  CaptureOptions held_out = options();
  held_out.text_paths.push_back(folder_.path("heldout-prose.jsonl"));  // does not even exist
  EXPECT_NE(message_of(held_out).find("heldout-prose.jsonl: is held-out text by its name"),
            std::string::npos);
}

TEST_F(NanoCapture, WhatCannotWorkIsSaidInOneLine) {
  CaptureOptions bad = options();
  bad.memory_gb = 0.001;
  EXPECT_NE(message_of(bad).find("--memory-gb is 0.001, layer 0 needs 0.0"), std::string::npos);
  bad = options();
  for (const int64_t layer : {int64_t{8}, std::numeric_limits<int64_t>::max()}) {
    bad.last_layer = layer;
    EXPECT_NE(message_of(bad).find(" and " + std::to_string(layer) + ", expected 0 to 7, ascend"),
              std::string::npos);
  }
  bad = options();
  bad.last_layer = 3;
  bad.teacher_path = folder_.path("t");
  EXPECT_NE(message_of(bad).find("--teacher needs all layers"), std::string::npos);
  bad = options();
  bad.propagated_path = test::pack_path("odd");
  EXPECT_NE(message_of(bad).find("another vocabulary"), std::string::npos);
  bad = options();
  bad.text_paths = {folder_.write("calibration-one.txt", "a single document")};
  EXPECT_NE(message_of(bad).find("documents falls into the "), std::string::npos);
  bad = options();
  bad.calibration_path.clear();
  EXPECT_NE(message_of(bad).find("needs --calibration, --teacher or --trace"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("made.k3cal.work")));
}

}  // namespace
}  // namespace k3
