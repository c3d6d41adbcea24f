#include "schema/sensitivity.h"

#include <gtest/gtest.h>

#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

Sensitivity two_candidates() {
  Sensitivity made;
  made.base_payload_xxh3 = 0x0123456789abcdef;
  made.texts = {{"calibration-prose", 7}};
  made.window_tokens = 256;
  made.positions = 1024;
  made.candidates = {{"int8", 1}, {"ternary", 2}};
  made.matrices = {{.name = "model.layers.0.self_attn.q_proj.weight",
                    .family = Family::kKda,
                    .source_xxh3 = 5,
                    .format = Format::kBf16,
                    .swaps = {{0, Format::kInt8, 11, 1e-7}, {1, Format::kTernary, 12, 0.25}}}};
  made.families = {{Family::kKda, {1, 1, 0.25, 0.25}}};
  made.whole = {{0, 1, 1e-7, 1e-7}, {1, 1, 0.25, 0.25}};
  return made;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Sensitivity, ReadsWhatWasWritten) {
  const TempFolder folder;
  const std::string text = sensitivity_text(two_candidates());
  const Sensitivity read = read_sensitivity(folder.write("a.k3sens", text));
  EXPECT_EQ(sensitivity_text(read), text);
  const MatrixSensitivity* matrix = read.find("model.layers.0.self_attn.q_proj.weight");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->source_xxh3, 5U);
  ASSERT_EQ(matrix->swaps.size(), 2U);
  EXPECT_EQ(matrix->swaps[1].format, Format::kTernary);
  EXPECT_EQ(matrix->swaps[1].kl, 0.25);
  EXPECT_EQ(read.find("model.norm.weight"), nullptr);
}

TEST(Sensitivity, RefusesWhatNoMeasurementGives) {
  const TempFolder folder;
  const std::string good = sensitivity_text(two_candidates());
  const auto fault = [&](const std::string& from, const std::string& to) {
    const std::string path = folder.write("bad.k3sens", replaced(good, from, to));
    return thrown_message([&] { read_sensitivity(path); });
  };
  EXPECT_NE(fault("k3sens", "k3eval").find("kind is k3eval, expected k3sens"), std::string::npos);
  EXPECT_NE(fault("\"k3sens\"", "\"a\\nb\"").find("kind is a\\x0ab, expected"), std::string::npos);
  EXPECT_NE(fault(good, "").find("is empty, expected a .k3sens file"), std::string::npos);
  EXPECT_NE(fault("\"version\": 1", "\"version\": 2").find("version is 2"), std::string::npos);
  EXPECT_NE(fault("\"kl\": 0.25", "\"kl\": -0.25").find("kl is not a KL"), std::string::npos);
  EXPECT_NE(fault("\"candidate\": 1", "\"candidate\": 2").find("candidate is not a whole number"),
            std::string::npos);
  EXPECT_NE(fault("\"format\": \"ternary\"", "\"format\": \"int8\"").find("format int8 twice"),
            std::string::npos);
  EXPECT_NE(fault("\"format\": \"ternary\"", "\"format\": \"mxfp4\"").find("no format of a trunk"),
            std::string::npos);
  EXPECT_NE(fault("0123456789abcdef", "0123456789abcde").find("16 hexadecimal digits"),
            std::string::npos);
  const std::string path = folder.write("bad.k3sens", std::string("{"));
  EXPECT_NE(thrown_message([&] { read_sensitivity(path); }).find("is not a .k3sens file"),
            std::string::npos);
}

}  // namespace
}  // namespace k3
