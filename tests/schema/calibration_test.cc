#include "schema/calibration.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "schema/calibration_index.h"
#include "schema/calibration_sums.h"
#include "schema/hash.h"
#include "schema/little_endian.h"
#include "tests/calibration_file.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

using Doubles = std::vector<double>;
constexpr CalibrationHalf kFit = CalibrationHalf::kFit;
constexpr CalibrationHalf kSelect = CalibrationHalf::kSelect;

Doubles gram_of(const CalibrationReader& reader, const std::string& matrix, CalibrationHalf half) {
  const CalibrationInput* input = reader.find(matrix);
  EXPECT_NE(input, nullptr) << matrix;
  Doubles gram(static_cast<size_t>(input->width * input->width));
  reader.gram(*input, half, gram);
  return gram;
}

// Everything a reader can be asked for.
void read_all(const std::string& path) {
  const CalibrationReader reader(path);
  for (const CalibrationInput& input : reader.index().inputs) {
    for (const CalibrationHalf half : kCalibrationHalves) {
      Doubles matrix(static_cast<size_t>(input.width * input.width));
      reader.gram(input, half, matrix);
      if (!reader.is_propagated()) continue;
      reader.cross(input, half, matrix);
      reader.source_gram(input, half, matrix);
    }
  }
}

class Calibration : public testing::Test {
 protected:
  TempFolder folder_;
  std::string path_ = folder_.path("made.k3cal");
};

TEST_F(Calibration, AGramMatrixIsSymmetricAndInTheUnitsOfItsChannels) {
  write_calibration(path_, two_inputs());
  const CalibrationReader reader(path_);
  // Channel 1 counts quarters, channel 2 was always zero.
  EXPECT_EQ(gram_of(reader, "model.layers.0.self_attn.q_proj.weight", kFit),
            (Doubles{10, -2.5, 0, -2.5, 1.25, 0, 0, 0, 0}));
  EXPECT_EQ(gram_of(reader, "model.layers.0.self_attn.q_proj.weight", kSelect),
            (Doubles{25, -7.5, 0, -7.5, 2.25, 0, 0, 0, 0}));
  EXPECT_EQ(gram_of(reader, "model.layers.0.mlp.up_proj.weight", kFit),
            (Doubles{49 * 64, 0, 0, 4}));
  std::vector<float> floats(4);
  reader.gram(*reader.find("model.layers.0.mlp.up_proj.weight"), kSelect, floats);
  EXPECT_EQ(floats, (std::vector<float>{256, 64, 64, 16}));
  EXPECT_EQ(reader.find("model.layers.0.mlp.gate_proj.weight"), nullptr);
  EXPECT_EQ(reader.tokens(kFit), 2);
  EXPECT_EQ(reader.tokens(kSelect), 1);
}

TEST_F(Calibration, ACrossMatrixHasTheSourceModelsChannelsAsRows) {
  std::vector<MadeInput> inputs = two_inputs();
  std::vector<MadeInput> source = inputs;
  source[0].steps = {1, 0, 0};
  source[0].x[0] = {{1, 0, 1}, {0, 0, 2}};
  write_calibration(path_, inputs, 1, source);
  const CalibrationReader reader(path_);
  ASSERT_TRUE(reader.is_propagated());
  const CalibrationInput& input = reader.index().inputs.front();
  Doubles matrix(9);
  reader.cross(input, kFit, matrix);  // row 0: 2 (1, 2/4, 0); row 2: (1 - 6, (2 + 8) / 4, 0)
  EXPECT_EQ(matrix, (Doubles{2, 1, 0, 0, 0, 0, -5, 2.5, 0}));
  reader.source_gram(input, kFit, matrix);
  EXPECT_EQ(matrix, (Doubles{4, 0, 2, 0, 0, 0, 2, 0, 5}));
}

TEST_F(Calibration, OtherWeightsAndOtherWidthsAreRefused) {
  write_calibration(path_, two_inputs());
  const CalibrationReader reader(path_);
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  EXPECT_EQ(reader.expect(name, 2, 77).name, "layers.0.ffn");
  EXPECT_NE(thrown_message([&] { reader.expect(name, 2, 78); }).find("on other weights"),
            std::string::npos);
  EXPECT_NE(thrown_message([&] { reader.expect(name, 3, 77); }).find("has 3 columns"),
            std::string::npos);
  EXPECT_NE(thrown_message([&] { reader.expect("x", 2, 77); }).find("matrix x was not captured"),
            std::string::npos);
}

TEST_F(Calibration, EveryCutIsRefused) {
  write_calibration(path_, two_inputs());
  const std::vector<std::byte> bytes = file_bytes(path_);
  for (size_t length = 0; length < bytes.size(); length += length < 80 ? 1 : 97) {
    folder_.write("cut.k3cal", std::span(bytes).first(length));
    EXPECT_NE(thrown_message([&] { read_all(folder_.path("cut.k3cal")); }), "no error") << length;
  }
}

// Padding included: every byte of the file is either read and hashed or has to be zero.
TEST_F(Calibration, EveryFlippedBitIsRefused) {
  write_calibration(path_, two_inputs());
  std::vector<std::byte> bytes = file_bytes(path_);
  for (size_t i = 0; i < bytes.size(); i += i % 4096 < 80 || i > bytes.size() - 900 ? 1 : 61) {
    const auto bit = static_cast<std::byte>(1 << i % 8);
    bytes[i] ^= bit;
    const std::string path = folder_.write("flipped.k3cal", bytes);
    bytes[i] ^= bit;
    const std::string message = thrown_message([&] { read_all(path); });
    EXPECT_TRUE(message.starts_with(path + ": ")) << "byte " << i << ": " << message;
  }
}

// Whoever can compute a hash can write any index: each mutation is parsed and checked or refused in
// one line.
TEST_F(Calibration, AnIndexOfAnyBytesEndsInAResultOrInOneLine) {
  write_calibration(path_, two_inputs(), 1, two_inputs());
  const CalibrationReader reader(path_);
  const std::string sound = encode_calibration_index(reader.index());
  const auto file_end = static_cast<int64_t>(std::filesystem::file_size(path_));
  const int64_t index_at = file_end - std::ssize(sound);
  size_t refused = 0;
  const auto try_index = [&](const std::string& json) {
    const std::string message = thrown_message(
        [&] { check_calibration_index("f", parse_calibration_index("f", json), index_at); });
    refused += message == "no error" ? 0 : 1;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  try_index(sound);
  EXPECT_EQ(refused, 0u);
  for (size_t i = 0; i < sound.size(); ++i) {
    for (const char other : {'9', '"', '-', ']', '\n'}) {
      std::string changed = sound;
      changed[i] = other;
      try_index(changed);
    }
    try_index(sound.substr(0, i));
    try_index(sound.substr(0, i) + sound.substr(i + 1));
  }
  EXPECT_GT(refused, 5 * sound.size());
}

TEST_F(Calibration, ADocumentIsInTheHalfOfItsHash) {
  write_calibration(path_, two_inputs());
  CalibrationIndex index = CalibrationReader(path_).index();
  std::swap(index.documents[0].xxh3, index.documents[1].xxh3);
  EXPECT_NE(thrown_message([&] {
              check_calibration_index("f", index, int64_t{1} << 20);
            }).find("is in the fit half, by its hash it belongs to the other"),
            std::string::npos);
}

TEST_F(Calibration, MatricesLargerThanAPieceComeBackWhole) {
  constexpr int64_t kWidth = 1500;  // a triangle of two pieces, a square of three
  for (const bool triangular : {true, false}) {
    const GramPlace place{kWidth, triangular};
    const std::vector<RowRange> pieces = place.pieces();
    EXPECT_EQ(pieces.size(), triangular ? 2u : 3u);
    int64_t entries = 0;
    int64_t next = 0;
    for (const RowRange& piece : pieces) {
      EXPECT_EQ(piece.begin, next);
      EXPECT_LE(place.entries(piece), kGramPieceEntries);
      entries += place.entries(piece);
      next = piece.end;
    }
    EXPECT_EQ(next, kWidth);
    EXPECT_EQ(entries, triangular ? kWidth * (kWidth + 1) / 2 : kWidth * kWidth);
  }
}

TEST_F(Calibration, SumsOfAllSizesAndSignsAreStoredExactly) {
  std::vector<int64_t> sums = {0, 1, -1, 255, -256, INT64_MAX, INT64_MIN, int64_t{1} << 53};
  std::vector<int64_t> read(sums.size());
  decompress_sums(compress_sums(sums), "f", read);
  EXPECT_EQ(read, sums);
  EXPECT_NE(
      thrown_message([&] { decompress_sums(compress_sums(sums), "f", std::span(read).first(3)); }),
      "no error");
}

TEST_F(Calibration, MergedSumsAreThoseOfAJointCaptureWhereStepsAgree) {
  std::vector<MadeInput> first = two_inputs();
  std::vector<MadeInput> second = two_inputs();
  second[0].x[0] = {{9, 9, 0}};
  std::vector<MadeInput> joint = first;
  joint[0].x[0].push_back({9, 9, 0});
  joint[0].x[1].push_back(second[0].x[1][0]);
  write_calibration(folder_.path("a"), first, 1);
  write_calibration(folder_.path("b"), second, 2);
  write_calibration(folder_.path("joint"), joint, 3);
  merge_calibrations(CalibrationReader(folder_.path("a")), CalibrationReader(folder_.path("b")),
                     path_);
  const CalibrationReader merged(path_);
  const CalibrationReader want(folder_.path("joint"));
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  for (const CalibrationHalf half : kCalibrationHalves) {
    EXPECT_EQ(gram_of(merged, name, half), gram_of(want, name, half));
    EXPECT_EQ(merged.index().of(half).xxh3.size(), 2u);
  }
  EXPECT_EQ(merged.tokens(kFit), 3);
  EXPECT_EQ(merged.index().texts.size(), 2u);
}

TEST_F(Calibration, MergingBringsTheFinerChannelToTheCoarserStep) {
  std::vector<MadeInput> first = two_inputs();
  std::vector<MadeInput> second = two_inputs();
  second[0].steps = {2, -2, -4};
  second[0].x[0] = {{1, 0, 8}};
  write_calibration(folder_.path("a"), first, 1);
  write_calibration(folder_.path("b"), second, 2, {});
  merge_calibrations(CalibrationReader(folder_.path("a")), CalibrationReader(folder_.path("b")),
                     path_);
  const CalibrationReader merged(path_);
  EXPECT_EQ(merged.steps(merged.index().inputs[0]), (std::vector<int16_t>{2, -2, -4}));
  const Doubles gram = gram_of(merged, "model.layers.0.self_attn.q_proj.weight", kFit);
  EXPECT_NEAR(gram[0], 10 + 16, 8);  // units of 2^4
  EXPECT_NEAR(gram[1], -2.5, 0.5);   // of 2^0
  EXPECT_EQ(gram[2], 2);             // the first file's third channel was zero
  EXPECT_EQ(gram[4], 1.25);
  EXPECT_EQ(gram[8], 0.25);
}

TEST_F(Calibration, WhatDoesNotBelongTogetherIsNotMerged) {
  const std::string a = folder_.path("a");
  write_calibration(a, two_inputs(), 1);
  const auto message = [&](const std::string& other) {
    return thrown_message(
        [&] { merge_calibrations(CalibrationReader(a), CalibrationReader(other), path_); });
  };
  EXPECT_NE(message(a).find("is in both and would count twice"), std::string::npos);
  std::vector<MadeInput> fewer = two_inputs();
  fewer.pop_back();
  write_calibration(folder_.path("fewer"), fewer, 2);
  EXPECT_NE(message(folder_.path("fewer")).find("it has 1 inputs, not 2"), std::string::npos);
  write_calibration(folder_.path("propagated"), two_inputs(), 2, two_inputs());
  EXPECT_NE(message(folder_.path("propagated")).find("on another pack"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".unfinished"));
}

}  // namespace
}  // namespace k3
