#include "compiler/synth_weights.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "compiler/synth_matrix.h"
#include "compiler/synth_random.h"
#include "schema/formats/bf16.h"
#include "schema/formats/mxfp4.h"
#include "schema/hash.h"

namespace k3 {
namespace {

SynthTensor tensor_of(std::string_view kind, Dtype dtype, const Shape& shape) {
  SynthTensor tensor;
  tensor.name = "model.layers.1." + std::string(kind);
  tensor.kind = kind;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.used_entries = tensor.entries();
  return tensor;
}

std::vector<std::byte> made(const std::vector<SynthTensor>& tensors, uint64_t seed = 0) {
  int64_t total_bytes = 0;
  for (const SynthTensor& tensor : tensors) total_bytes += tensor.bytes();
  std::vector<std::byte> bytes(static_cast<size_t>(total_bytes));
  int64_t next_bytes = 0;
  for (const SynthPiece& piece : cut_into_pieces(tensors)) {
    EXPECT_EQ(piece.offset_bytes, next_bytes);
    next_bytes += piece.length_bytes;
    make_weights(tensors, piece, seed,
                 std::span(bytes).subspan(static_cast<size_t>(piece.offset_bytes),
                                          static_cast<size_t>(piece.length_bytes)));
  }
  EXPECT_EQ(next_bytes, total_bytes);
  return bytes;
}

std::vector<float> values(const SynthTensor& tensor, uint64_t seed = 0) {
  const std::vector<std::byte> bytes = made({tensor}, seed);
  std::vector<float> floats(static_cast<size_t>(tensor.entries()));
  for (size_t i = 0; i < floats.size(); ++i) {
    if (tensor.dtype == Dtype::kF32) {
      std::memcpy(&floats[i], bytes.data() + 4 * i, 4);
    } else {
      uint16_t code = 0;
      std::memcpy(&code, bytes.data() + 2 * i, 2);
      floats[i] = decode_bf16(code);
    }
  }
  return floats;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double kurtosis = 0;
};

Moments moments_of(const std::vector<float>& numbers) {
  Moments moments;
  const auto count = static_cast<double>(numbers.size());
  for (const float x : numbers) moments.mean += x / count;
  double second = 0;
  double fourth = 0;
  for (const float x : numbers) {
    const double d = x - moments.mean;
    second += d * d / count;
    fourth += d * d * d * d / count;
  }
  moments.deviation = std::sqrt(second);
  moments.kurtosis = fourth / (second * second);
  return moments;
}

TEST(SynthRandom, BellIsStandardAndNearlyGaussian) {
  const RandomStream stream(1, "x");
  std::vector<float> numbers(200'000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = stream.bell(i);
  const Moments moments = moments_of(numbers);
  EXPECT_NEAR(moments.mean, 0, 0.01);
  EXPECT_NEAR(moments.deviation, 1, 0.01);
  EXPECT_NEAR(moments.kurtosis, 2.85, 0.05);
}

TEST(SynthRandom, SeedNameBranchAndNumberAllMatter) {
  const RandomStream stream(1, "x");
  EXPECT_NE(stream.bits(0), stream.bits(1));
  EXPECT_NE(stream.bits(0), RandomStream(2, "x").bits(0));
  EXPECT_NE(stream.bits(0), RandomStream(1, "y").bits(0));
  EXPECT_NE(stream.bits(0), stream.branch(0).bits(0));
  EXPECT_NE(stream.branch(0).bits(0), stream.branch(1).bits(0));
}

// Another compiler, processor or standard library must make these bytes too.
TEST(SynthWeights, TheBytesAreTheSameEverywhere) {
  const auto hash = [](const std::vector<SynthTensor>& tensors) { return xxh3(made(tensors, 7)); };
  EXPECT_EQ(hash({tensor_of("self_attn.q_proj.weight", Dtype::kBf16, {96, 80})}),
            13015299261484128226u);
  EXPECT_EQ(hash({tensor_of("self_attn.dt_bias", Dtype::kF32, {100})}), 12181164214868393696u);
  EXPECT_EQ(hash({tensor_of("w1.weight_packed", Dtype::kU8, {64, 48}),
                  tensor_of("w1.weight_scale", Dtype::kU8, {64, 3})}),
            7074411682312219878u);
}

TEST(SynthWeights, AMatrixKeepsTheSizeOfItsInputs) {
  const int64_t cols = 500;
  const auto weights = values(tensor_of("self_attn.v_proj.weight", Dtype::kBf16, {400, cols}));
  const double rms = moments_of(weights).deviation;
  EXPECT_NEAR(rms * std::sqrt(static_cast<double>(cols)), 1, 0.1);
}

// The share of a matrix's energy that the strongest direction of its inputs has.
double strongest_share(const std::vector<float>& matrix, size_t rows, size_t cols) {
  std::vector<double> direction(cols, 1);
  double share = 0;
  for (int step = 0; step < 60; ++step) {
    std::vector<double> next(cols, 0);
    for (size_t i = 0; i < rows; ++i) {
      double product = 0;
      for (size_t j = 0; j < cols; ++j) product += matrix[i * cols + j] * direction[j];
      for (size_t j = 0; j < cols; ++j) next[j] += matrix[i * cols + j] * product;
    }
    double norm = 0;
    for (const double x : next) norm += x * x;
    norm = std::sqrt(norm);
    for (size_t j = 0; j < cols; ++j) direction[j] = next[j] / norm;
    share = norm;
  }
  double energy = 0;
  for (const float x : matrix) energy += static_cast<double>(x) * x;
  return share / energy;
}

TEST(SynthWeights, ATrunkMatrixHasAFewStrongDirections) {
  const size_t size = 256;
  const auto trunk = values(tensor_of("self_attn.q_proj.weight", Dtype::kBf16, {size, size}));
  // White noise of this size has its strongest at 4 / 256 = 0.016.
  EXPECT_GT(strongest_share(trunk, size, size), 0.08);
  EXPECT_LT(strongest_share(trunk, size, size), 0.4);
}

TEST(SynthWeights, SomeColumnsOfATrunkMatrixStandOut) {
  const size_t rows = 64;
  const size_t cols = 2048;
  const auto trunk = values(tensor_of("self_attn.q_proj.weight", Dtype::kBf16, {64, 2048}));
  double mean = 0;
  std::vector<double> squares(cols, 0);
  for (size_t i = 0; i < trunk.size(); ++i) {
    squares[i % cols] += static_cast<double>(trunk[i]) * trunk[i] / rows;
  }
  for (const double x : squares) mean += x / cols;
  int64_t outliers = 0;
  for (const double x : squares) outliers += x > 8 * mean ? 1 : 0;
  EXPECT_GE(outliers, 4);
  EXPECT_LE(outliers, 32);
}

TEST(SynthWeights, VectorsAreLikeTrainedOnes) {
  const auto norm = moments_of(values(tensor_of("input_layernorm.weight", Dtype::kBf16, {4096})));
  EXPECT_NEAR(norm.mean, 1, 0.01);
  EXPECT_NEAR(norm.deviation, 0.06, 0.01);
  const auto bias = moments_of(
      values(tensor_of("block_sparse_moe.gate.e_score_correction_bias", Dtype::kF32, {896})));
  EXPECT_NEAR(bias.mean, 0, 0.01);
  EXPECT_LT(bias.deviation, 0.05);
  const auto decay = moments_of(values(tensor_of("self_attn.dt_bias", Dtype::kF32, {4096})));
  EXPECT_NEAR(decay.mean, -3, 0.1);
}

TEST(SynthWeights, TheNewestTapOfAConvolutionLeads) {
  const auto taps = values(tensor_of("self_attn.k_conv1d.weight", Dtype::kF32, {1000, 1, 4}));
  std::array<double, 4> means{};
  for (size_t i = 0; i < taps.size(); ++i) means[i % 4] += taps[i] / 1000;
  EXPECT_NEAR(means[3], 0.83, 0.05);
  for (const size_t older : {0, 1, 2}) EXPECT_NEAR(means[older], 0, 0.05);
}

TEST(SynthWeights, ALogIsZeroBehindItsHeads) {
  SynthTensor a_log = tensor_of("self_attn.A_log", Dtype::kF32, {128});
  a_log.used_entries = 96;
  const auto entries = values(a_log);
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i] == 0, i >= 96) << i;
    EXPECT_LT(std::fabs(entries[i]), 1.6f);
  }
}

// The published shares are those of the first 64 rows of one expert's w1.
TEST(SynthWeights, AnExpertUsesCodesAndScalesAsTheReleasedOnesDo) {
  const int64_t rows = 256;
  const auto bytes = made({tensor_of("w1.weight_packed", Dtype::kU8, {rows, 1792}),
                           tensor_of("w1.weight_scale", Dtype::kU8, {rows, 112})});
  const auto codes = reinterpret_cast<const uint8_t*>(bytes.data());
  const int64_t weights = rows * 3584;
  const uint8_t* scales = codes + weights / 2;
  std::array<double, 16> code_shares{};
  std::array<double, 256> scale_shares{};
  for (int64_t group = 0; group < weights / kMxfp4GroupInputs; ++group) {
    int largest = 0;
    for (int64_t i = 0; i < kMxfp4GroupInputs; ++i) {
      const unsigned code = mxfp4_code_at(codes, group * kMxfp4GroupInputs + i);
      code_shares[code] += 100.0 / static_cast<double>(weights);
      largest = std::max(largest, std::abs(decode_mxfp4_doubled(code)));
    }
    EXPECT_TRUE(largest == 8 || largest == 12) << "group " << group;  // 4 or 6
    scale_shares[scales[group]] += 100.0 * kMxfp4GroupInputs / static_cast<double>(weights);
  }
  const std::array<double, 8> released = {11.6, 22.1, 19.2, 15.3, 15.3, 10.5, 5.1, 1.0};
  for (size_t code = 0; code < released.size(); ++code) {
    EXPECT_NEAR(code_shares[code] + code_shares[code + 8], released[code], 1.5) << code;
  }
  EXPECT_NEAR(code_shares[8], code_shares[0], 0.5);  // negative zero
  EXPECT_NEAR(scale_shares[120], 15.4, 4);
  EXPECT_NEAR(scale_shares[121], 84.1, 4);
  EXPECT_GT(scale_shares[122], 0.05);
  EXPECT_NEAR(scale_shares[120] + scale_shares[121] + scale_shares[122], 100, 0.1);
}

TEST(SynthWeights, LargeTensorsAreCutByRowsWithoutAnEffectOnTheirValues) {
  const SynthTensor large = tensor_of("lm_head.weight", Dtype::kBf16, {3000, 1024});
  const std::vector<SynthPiece> pieces = cut_into_pieces(std::span(&large, 1));
  ASSERT_EQ(pieces.size(), 2u);
  SynthPiece whole{0, 0, 3000, 0, large.bytes()};
  std::vector<std::byte> bytes(static_cast<size_t>(large.bytes()));
  make_weights(std::span(&large, 1), whole, 0, bytes);
  EXPECT_EQ(bytes, made({large}));
}

}  // namespace
}  // namespace k3
