// A pack compiled with --tuned, against the one that it was tuned for.
#include <gtest/gtest.h>

#include <bit>

#include "compiler/compile.h"
#include "schema/formats/block_scales.h"
#include "schema/little_endian.h"
#include "schema/matrix_view.h"
#include "schema/pack_reader.h"
#include "schema/tuning.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

constexpr const char* kMatrix = "model.layers.2.self_attn.o_proj.weight";
constexpr const char* kNorm = "model.layers.2.input_layernorm.weight";

class TunedPack : public testing::Test {
 protected:
  TunedPack() { compile("plain", ""); }

  void compile(const std::string& name, const std::string& tuning, bool rotate = false) {
    CompileRequest request;
    request.checkpoint = K3_SOURCE_DIR "/examples/nano/checkpoint";
    request.output = folder_.path(name);
    request.quiet = true;
    request.options.ternary_trunk.trunk = Precision::kTernary;
    request.options.tuning.path = tuning;
    request.options.rotate_stream.rotate = rotate;
    testing::internal::CaptureStdout();
    const std::string message = thrown_message([&] { run_compile(request); });
    testing::internal::GetCapturedStdout();
    if (message != "no error") throw Error(message);
  }
  PackReader pack(const std::string& name) const { return PackReader(folder_.path(name)); }

  // Scales and a gain that no rounding would have made.
  std::vector<TunedTensor> tensors() const {
    const PackReader plain = pack("plain");
    const PackTensor& matrix = *plain.find(kMatrix);
    const Blocks160 place{matrix.format, matrix.shape[0], matrix.shape[1]};
    TunedTensor scales{kMatrix, {place.rows, place.blocks_per_row()}, {}};
    for (int64_t i = 0; i < *scales.shape.elements(); ++i) {
      scales.values.push_back(1e-3F * static_cast<float>(i % 7));
    }
    TunedTensor gain{kNorm, plain.find(kNorm)->shape, {}};
    for (int64_t i = 0; i < *gain.shape.elements(); ++i) {
      gain.values.push_back(0.1F - 0.001F * static_cast<float>(i));
    }
    return {scales, gain};
  }
  std::string write(uint64_t payload) const { return write(payload, tensors()); }
  std::string write(uint64_t payload, const std::vector<TunedTensor>& tensors) const {
    const std::string path = folder_.path("t.k3tune");
    write_tuning(path, payload, tensors);
    return path;
  }
  // Codes that no rounding would have made.
  TunedTensor codes() const {
    TunedTensor codes{std::string(kMatrix) + ".codes", pack("plain").find(kMatrix)->shape, {}, {}};
    for (int64_t i = 0; i < *codes.shape.elements(); ++i) {
      codes.codes.push_back(static_cast<int8_t>(i % 5 % 3 - 1));
    }
    return codes;
  }
  static std::vector<std::byte> extent_of(const PackReader& pack, const PackTensor& tensor) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.extent.length_bytes));
    pack.read(tensor.extent, tensor.name, bytes);
    return bytes;
  }

  void expect_tuned_gain(const std::string& name) const {
    const PackReader tuned = pack(name);
    const PackTensor& norm = *tuned.find(kNorm);
    EXPECT_EQ(norm.format, Format::kF32);
    const std::vector<std::byte> bytes = extent_of(tuned, norm);
    const std::vector<float> gain = tensors()[1].values;
    ASSERT_EQ(bytes.size(), gain.size() * sizeof(float));
    for (size_t i = 0; i < gain.size(); ++i) {
      EXPECT_EQ(std::bit_cast<float>(load_little_endian<uint32_t>(&bytes[4 * i])), gain[i]);
    }
  }

  TempFolder folder_;
};

TEST_F(TunedPack, HasTheTunedScalesBehindTheSameCodes) {
  const PackReader plain = pack("plain");
  compile("tuned", write(plain.payload_xxh3()));
  const PackReader tuned = pack("tuned");
  EXPECT_TRUE(tuned.verify().empty());
  const std::vector<float> scales = tensors()[0].values;
  for (const PackTensor& before : plain.index().content.tensors) {
    const PackTensor& after = *tuned.find(before.name);
    if (before.name == kNorm) continue;
    const std::vector<std::byte> got = extent_of(tuned, after);
    std::vector<std::byte> want = extent_of(plain, before);
    if (before.name == kMatrix) {
      const Blocks160 place{before.format, before.shape[0], before.shape[1]};
      const auto blocks = static_cast<size_t>(place.blocks_per_row());
      for (int64_t row = 0; row < place.rows; ++row) {
        std::vector<uint8_t> multipliers(blocks);
        const float row_scale = round_block_scales(
            std::span(scales).subspan(static_cast<size_t>(row) * blocks, blocks), multipliers);
        std::ranges::copy(std::as_bytes(std::span(multipliers)),
                          &want[static_cast<size_t>(place.multiplier_offset(row, 0))]);
        store_little_endian(std::bit_cast<uint32_t>(row_scale),
                            &want[static_cast<size_t>(place.row_scale_offset(row))]);
      }
      EXPECT_NE(want, extent_of(plain, before));
    }
    EXPECT_EQ(got, want) << before.name;
  }
}

TEST_F(TunedPack, HasTheTunedGainAsFloats) {
  compile("tuned", write(pack("plain").payload_xxh3()));
  expect_tuned_gain("tuned");
}

// Without tuning the norm would be ones, which are floats already.
TEST_F(TunedPack, HasTheTunedGainWhereRotationFoldedTheNormAway) {
  compile("rotated", "", true);
  compile("tuned", write(pack("rotated").payload_xxh3()), true);
  expect_tuned_gain("tuned");
}

TEST_F(TunedPack, HasTrainedCodesWithTheirScales) {
  std::vector<TunedTensor> tuning = tensors();
  tuning.push_back(codes());
  compile("tuned", write(pack("plain").payload_xxh3(), tuning));
  const PackReader tuned = pack("tuned");
  EXPECT_TRUE(tuned.verify().empty());
  const PackTensor& matrix = *tuned.find(kMatrix);
  const std::vector<std::byte> extent = extent_of(tuned, matrix);
  const MatrixView view =
      view_matrix(matrix.format, matrix.shape[0], matrix.shape[1], extent.data());
  for (int64_t i = 0; i < view.rows * view.cols; ++i) {
    ASSERT_EQ(ternary_code_at(view, i / view.cols, i % view.cols),
              tuning.back().codes[static_cast<size_t>(i)]);
  }
  // The scales are those that came with them.
  compile("scales", write(pack("plain").payload_xxh3()));
  const PackReader scales_only = pack("scales");
  const std::vector<std::byte> other = extent_of(scales_only, *scales_only.find(kMatrix));
  const Blocks160 place{matrix.format, view.rows, view.cols};
  EXPECT_TRUE(std::equal(extent.begin() + place.multipliers_offset(), extent.end(),
                         other.begin() + place.multipliers_offset(), other.end()));
}

TEST_F(TunedPack, RefusesCodesThatTheFormatCannotHold) {
  std::vector<TunedTensor> tuning = tensors();
  tuning.push_back(codes());
  tuning.back().codes[7] = 2;
  const std::string path = write(pack("plain").payload_xxh3(), tuning);
  const std::string message = thrown_message([&] { compile("tuned", path); });
  EXPECT_NE(message.find(".codes: value 7 is 2, expected -1 to 1"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(folder_.path("tuned")));
}

TEST_F(TunedPack, IsRefusedWhenTheTuningIsForAnother) {
  const uint64_t payload = pack("plain").payload_xxh3();
  const std::string message = thrown_message([&] { compile("tuned", write(payload + 1)); });
  EXPECT_NE(message.find("make payload " + hex_digits(payload)), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(folder_.path("tuned")));
}

}  // namespace
}  // namespace k3
