#include "schema/tuning.h"

#include <gtest/gtest.h>

#include <limits>

#include "schema/safetensors_writer.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

TEST(Tuning, ReadsWhatWasWritten) {
  const TempFolder folder;
  const std::string path = folder.path("a.k3tune");
  write_tuning(
      path, 0xfeed,
      std::vector<TunedTensor>{{"matrix", {2, 3}, {0, 1, 2, 3, 4, 5}}, {"norm", {2}, {-1, 0.5F}}});
  const TuningReader tuning(path);
  EXPECT_EQ(tuning.pack_payload_xxh3(), 0xfeedU);
  ASSERT_EQ(tuning.tensors(), 2);
  EXPECT_EQ(tuning.name(1), "norm");
  EXPECT_EQ(tuning.shape(0), (Shape{2, 3}));
  std::vector<float> values(6);
  tuning.read(0, values);
  EXPECT_EQ(values, (std::vector<float>{0, 1, 2, 3, 4, 5}));
  values.resize(2);
  tuning.read(1, values);
  EXPECT_EQ(values, (std::vector<float>{-1, 0.5F}));  // a gain may be negative
}

TEST(Tuning, ReadsCodesWithinTheirFormat) {
  const TempFolder folder;
  const std::string path = folder.path("codes.k3tune");
  const std::vector<int8_t> written = {0, 1, -1, 1, 2, 0};
  write_tuning(path, 1, std::vector<TunedTensor>{{"m.codes", {2, 3}, {}, written}});
  const TuningReader tuning(path);
  ASSERT_TRUE(tuning.has_codes(0));
  std::vector<int8_t> codes(6);
  tuning.read_codes(0, 2, codes);
  EXPECT_EQ(codes, written);
  EXPECT_NE(thrown_message([&] {
              tuning.read_codes(0, 1, codes);
            }).find("m.codes: value 4 is 2, expected -1 to 1"),
            std::string::npos);
}

TEST(Tuning, RefusesScalesThatNoPackCanHold) {
  const TempFolder folder;
  const std::string path = folder.path("bad.k3tune");
  std::vector<float> values(2);
  const auto fault = [&](const Shape& shape, float value) {
    write_tuning(path, 1, std::vector<TunedTensor>{{"one", shape, {1, value}}});
    return thrown_message([&] { TuningReader(path).read(0, values); });
  };
  EXPECT_NE(fault({1, 2}, -1e-3F).find("one: value 1 is -0.001"), std::string::npos);
  EXPECT_NE(fault({1, 2}, std::numeric_limits<float>::infinity()).find("value 1 is inf"),
            std::string::npos);
  EXPECT_NE(fault({2}, std::numeric_limits<float>::quiet_NaN()).find("value 1 is"),
            std::string::npos);
}

TEST(Tuning, RefusesOtherSafetensorsFiles) {
  const TempFolder folder;
  const std::string path = folder.path("other.safetensors");
  const std::vector<float> values(8);
  const auto fault = [&](const char* kind, const char* payload, const Shape& shape,
                         const char* name = "one") {
    const TensorToWrite tensor{name, Dtype::kF32, shape, std::as_bytes(std::span(values))};
    const std::pair<std::string, std::string> metadata[] = {
        {"kind", kind}, {"version", "1"}, {"pack_payload_xxh3", payload}};
    write_safetensors(path, std::span(&tensor, 1), metadata);
    return thrown_message([&] { TuningReader{path}; });
  };
  EXPECT_NE(fault("k3state", "0123456789abcdef", {8}).find("kind is k3state, expected k3tune"),
            std::string::npos);
  EXPECT_NE(fault("k3tune", "0123", {8}).find("16 hexadecimal digits"), std::string::npos);
  EXPECT_NE(fault("a\nb", "", {8}).find("kind is a\\x0ab, expected"), std::string::npos);
  EXPECT_NE(fault("k3tune", "a\nb", {8}).find("is a\\x0ab, expected 16"), std::string::npos);
  EXPECT_NE(fault("k3tune", "0123456789abcdef", {2, 2, 2}, "a\nb").find("tensor a\\x0ab: is F32"),
            std::string::npos);
  EXPECT_NE(fault("k3tune", "0123456789abcdef", {2, 2, 2}).find("expected F32 [rows, blocks]"),
            std::string::npos);
  EXPECT_NE(fault("k3tune", "0123456789abcdef", {2, 4}, "one.codes")
                .find("one.codes: is F32 [2, 4], expected I8 [rows, cols]"),
            std::string::npos);
}

}  // namespace
}  // namespace k3
