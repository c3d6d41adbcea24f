#include "compiler/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/encode_expert.h"
#include "compiler/fixed_point.h"
#include "passes/ternary_round.h"
#include "schema/compact_scales.h"
#include "schema/formats/mxfp4.h"
#include "schema/formats/ternary.h"
#include "schema/matrix_view.h"
#include "schema/pack_reader.h"
#include "tests/compile_tiny.h"
#include "tests/thrown_message.h"
#include "tests/tiny_model.h"

namespace k3 {
namespace {

std::string failure(TinySource& source, const Options& options = {}) {
  const TempFolder folder;
  return thrown_message([&] { compile_tiny(source, folder, options); });
}

std::vector<std::byte> read(const PackReader& pack, const Extent& extent) {
  std::vector<std::byte> bytes(static_cast<size_t>(extent.length_bytes));
  pack.read(extent, "extent", bytes);
  return bytes;
}

Options int8_options() {
  Options options;
  options.ternary_trunk.trunk = options.ternary_trunk.head = Precision::kInt8;
  return options;
}

TEST(Encode, FloatsAreTheCheckpointsBytes) {
  const TempFolder folder;
  TinySource source;
  const PackReader pack = compile_tiny(source, folder);
  EXPECT_TRUE(pack.verify().empty());
  for (const TrunkTensor& tensor : source.model.trunk) {
    const auto want = source.bytes_of(tensor.source);
    const auto got = read(pack, pack.find(tensor.name)->extent);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end())) << tensor.name;
    EXPECT_EQ(tensor.source_xxh3, xxh3(want));
  }
}

// A row of a bf16 matrix as it is in the checkpoint.
std::vector<float> bf16_row(TinySource& source, const TrunkTensor& tensor, int64_t row) {
  const auto bytes = source.bytes_of(tensor.source);
  std::vector<float> weights;
  for (int64_t col = 0; col < tensor.shape[1]; ++col) {
    const auto at = static_cast<size_t>(2 * (row * tensor.shape[1] + col));
    weights.push_back(decode_bf16(load_little_endian<uint16_t>(&bytes[at])));
  }
  return weights;
}

TEST(Encode, Int8RowsAreWhatEncodeInt8RowMakes) {
  const TempFolder folder;
  TinySource source;
  const PackReader pack = compile_tiny(source, folder, int8_options());
  EXPECT_TRUE(pack.verify().empty());
  int checked = 0;
  for (const TrunkTensor& tensor : source.model.trunk) {
    if (tensor.format != Format::kInt8) continue;
    ++checked;
    const int64_t rows = tensor.shape[0];
    const int64_t cols = tensor.shape[1];
    const auto extent = read(pack, pack.find(tensor.name)->extent);
    const MatrixView view = view_matrix(Format::kInt8, rows, cols, extent.data());
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<float> weights = bf16_row(source, tensor, row);
      std::vector<int8_t> codes(static_cast<size_t>(view.row_stride_bytes));
      std::vector<uint8_t> multipliers(static_cast<size_t>(view.scales_per_row));
      EXPECT_EQ(view.row_scales[row], encode_int8_row(weights, codes, multipliers));
      EXPECT_EQ(0,
                std::memcmp(view.codes + row * view.row_stride_bytes, codes.data(), codes.size()));
      EXPECT_EQ(0, std::memcmp(view.scales + row * view.scales_per_row, multipliers.data(),
                               multipliers.size()));
    }
  }
  EXPECT_GT(checked, 10);
}

TEST(Encode, TernaryRowsAreWhatRoundTernaryRowMakes) {
  for (const auto& [precision, format] : {std::pair(Precision::kTernary, Format::kTernary),
                                          std::pair(Precision::kTernary2, Format::kTernary2)}) {
    const TempFolder folder;
    TinySource source;
    Options options;
    options.ternary_trunk.trunk = precision;
    const PackReader pack = compile_tiny(source, folder, options);
    EXPECT_TRUE(pack.verify().empty());
    int checked = 0;
    for (const TrunkTensor& tensor : source.model.trunk) {
      if (tensor.format != format) continue;
      ++checked;
      const auto extent = read(pack, pack.find(tensor.name)->extent);
      const MatrixView view = view_matrix(format, tensor.shape[0], tensor.shape[1], extent.data());
      for (int64_t row = 0; row < view.rows; ++row) {
        const std::vector<float> weights = bf16_row(source, tensor, row);
        std::vector<int8_t> codes(static_cast<size_t>(view.scales_per_row * kBlockInputs));
        std::vector<uint8_t> multipliers(static_cast<size_t>(view.scales_per_row));
        const int largest = largest_ternary_code(format);
        const RoundedRow rounded = round_ternary_row(weights, largest, codes, multipliers);
        EXPECT_EQ(view.row_scales[row], rounded.row_scale);
        for (int64_t col = 0; col < view.cols; ++col) {
          EXPECT_EQ(ternary_code_at(view, row, col), codes[static_cast<size_t>(col)]);
          EXPECT_EQ(view.scales[row * view.scales_per_row + col / kBlockInputs],
                    multipliers[static_cast<size_t>(col / kBlockInputs)]);
        }
      }
    }
    EXPECT_GT(checked, 10);
  }
}

// Every weight through the views that kernels use, against the checkpoint's own planes.
TEST(Encode, EveryExpertWeightIsFoundInItsBand) {
  const TempFolder folder;
  TinySource source;
  const PackReader pack = compile_tiny(source, folder);
  const ExpertBands place{Format::kMxfp4, 64, 288};
  const PackBank& bank = *pack.bank(1);
  for (size_t number = 0; number < bank.experts.size(); ++number) {
    const auto extent = read(pack, bank.experts[number].extent);
    const Expert& expert = source.model.banks[0].experts[number];
    for (const auto matrix : {ExpertMatrix::kW1, ExpertMatrix::kW3, ExpertMatrix::kW2}) {
      // The checkpoint's order is w1, w2, w3.
      const size_t first = matrix == ExpertMatrix::kW1 ? 0 : matrix == ExpertMatrix::kW2 ? 2 : 4;
      const bool is_w2 = matrix == ExpertMatrix::kW2;
      const int64_t rows = is_w2 ? 64 : 288;
      const int64_t cols = is_w2 ? 288 : 64;
      const auto* codes =
          reinterpret_cast<const uint8_t*>(source.bytes_of(expert.sources[first]).data());
      const auto* scales =
          reinterpret_cast<const uint8_t*>(source.bytes_of(expert.sources[first + 1]).data());
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col) {
          const int64_t inner = is_w2 ? col : row;
          const int64_t band = inner / kBandInner;
          const MatrixView view = view_expert_part(place, band, matrix, 0, extent.data());
          const int64_t part_row = is_w2 ? row : row - band * kBandInner;
          const int64_t part_col = is_w2 ? col - band * kBandInner : col;
          const auto* row_codes =
              reinterpret_cast<const uint8_t*>(view.codes + part_row * view.row_stride_bytes);
          ASSERT_EQ(mxfp4_code_at(row_codes, part_col), mxfp4_code_at(codes + row * cols / 2, col));
          ASSERT_EQ(view.scales[part_row * view.scales_per_row + part_col / 32],
                    scales[row * (cols / 32) + col / 32]);
        }
      }
    }
    EXPECT_EQ(bank.experts[number].least_exponent, (std::array<uint8_t, 3>{118, 118, 118}));
  }
}

TEST(Encode, Bf16ExpertsGoThroughTheSameBands) {
  const TempFolder folder;
  TinySource source(Format::kBf16);
  const PackReader pack = compile_tiny(source, folder);
  EXPECT_TRUE(pack.verify().empty());
  const ExpertBands place{Format::kBf16, 64, 288};
  const auto extent = read(pack, pack.bank(1)->experts[3].extent);
  const auto w2 = source.bytes_of(source.model.banks[0].experts[3].sources[1]);
  const ExpertBands::Part part = place.part(1, ExpertMatrix::kW2);
  for (int64_t row = 0; row < 64; ++row) {
    for (int64_t col = 256; col < 288; ++col) {
      const auto got = extent[static_cast<size_t>(part.codes_offset + 2 * (row * 32 + col - 256))];
      ASSERT_EQ(got, w2[static_cast<size_t>(2 * (row * 288 + col))]);
    }
  }
  double bound = 0;
  for (const Expert& expert : source.model.banks[0].experts) {
    bound = std::fmax(bound, row_bound_bf16(source.bytes_of(expert.sources[1]), 64));
  }
  EXPECT_EQ(pack.bank(1)->fixed_point, fixed_point_for(tiny_config(), bound));
}

TEST(Encode, NamesAnExpertWhoseW2BoundsNothing) {
  for (const bool left_out : {false, true}) {
    TinySource source(Format::kBf16);
    Bank& bank = source.model.banks[0];
    const Source w2 = bank.experts[3].sources[1];
    store_little_endian(encode_bf16(std::nanf("")), &source.bytes_of(w2)[2 * 300]);
    if (left_out) {
      bank.left_out.push_back(bank.experts[3]);
      bank.experts.pop_back();
    }
    EXPECT_NE(failure(source).find("layer 1: expert 3.w2: has a weight that is NaN or infinite"),
              std::string::npos);
  }
}

Options compact_options() {
  Options options;
  options.reorder_layout.experts = ExpertLayout::kCompact;
  return options;
}

TEST(Encode, ACompactExpertExpandsToThePlainOnesBytes) {
  const TempFolder plain_folder;
  const TempFolder compact_folder;
  TinySource plain_source;
  TinySource compact_source;
  const PackReader plain = compile_tiny(plain_source, plain_folder);
  const PackReader compact = compile_tiny(compact_source, compact_folder, compact_options());
  EXPECT_TRUE(compact.verify().empty());
  const PackBank& want = *plain.bank(1);
  const PackBank& bank = *compact.bank(1);
  ASSERT_EQ(bank.layout, Layout::kExpertBandsCompact);
  EXPECT_EQ(bank.fixed_point, want.fixed_point);
  const ExpertBands place = resident_bands(compact.config(), bank);
  for (size_t i = 0; i < bank.experts.size(); ++i) {
    const auto stored = read(compact, bank.experts[i].extent);
    std::vector<std::byte> expanded(static_cast<size_t>(place.extent_bytes()));
    EXPECT_LT(stored.size(), expanded.size());
    expand_scales(place, bank.experts[i].least_exponent, stored, expanded);
    EXPECT_EQ(expanded, read(plain, want.experts[i].extent)) << i;
    EXPECT_EQ(bank.experts[i].least_exponent, want.experts[i].least_exponent);
  }
  EXPECT_EQ(compact.report("source_hashes"), plain.report("source_hashes"));
}

// One scale of expert 2's w2, and whether the bank is compact then.
TEST(Encode, ABankWithOneScaleThatDoesNotFitStaysAsItIs) {
  const auto is_compact = [](unsigned scale, bool zero_codes) {
    TinySource source;
    const Expert& expert = source.model.banks[0].experts[2];
    source.bytes_of(expert.sources[3])[3 * 9 + 1] = static_cast<std::byte>(scale);
    if (zero_codes) {
      for (std::byte& byte : source.bytes_of(expert.sources[2]).subspan((3 * 9 + 1) * 16, 16)) {
        byte = std::byte{0x80};
      }
    }
    const TempFolder folder;
    const PackReader pack = compile_tiny(source, folder, compact_options());
    EXPECT_TRUE(pack.verify().empty());
    return pack.bank(1)->layout == Layout::kExpertBandsCompact;
  };
  // The others are 118 to 122.
  EXPECT_TRUE(is_compact(133, false));
  EXPECT_FALSE(is_compact(134, false));
  EXPECT_TRUE(is_compact(133, true));
  EXPECT_FALSE(is_compact(134, true));
  EXPECT_TRUE(is_compact(107, false));
  EXPECT_FALSE(is_compact(106, false));
  EXPECT_FALSE(
      is_compact(117, true));  // below the least exponent, which only groups with codes make
  EXPECT_FALSE(is_compact(0, true));
}

TEST(Encode, Bf16ExpertsAreNeverCompact) {
  const TempFolder folder;
  TinySource source(Format::kBf16);
  const PackReader pack = compile_tiny(source, folder, compact_options());
  EXPECT_EQ(pack.bank(1)->layout, Layout::kExpertBands);
}

TEST(Encode, SourceHashesAreStoredInOrder) {
  const TempFolder folder;
  TinySource source;
  const PackReader pack = compile_tiny(source, folder);
  const auto hashes = pack.report(kSourceHashesReport);
  ASSERT_EQ(hashes.size(), 8 * (source.model.trunk.size() + 4));
  EXPECT_EQ(load_little_endian<uint64_t>(&hashes[0]),
            xxh3(source.bytes_of(source.model.trunk[0].source)));
  Xxh3Stream last;
  for (const Source& piece : source.model.banks[0].experts[3].sources) {
    last.update(source.bytes_of(piece));
  }
  EXPECT_EQ(load_little_endian<uint64_t>(&hashes[hashes.size() - 8]), last.digest());
}

TEST(Encode, TheFixedPointDoesNotDependOnWhichExpertsAreKept) {
  const auto fixed_point = [](bool leave_out) {
    const TempFolder folder;
    TinySource source;
    Bank& bank = source.model.banks[0];
    // The last expert's w2 has the layer's largest scales.
    for (std::byte& scale : source.bytes_of(bank.experts[3].sources[3])) scale = std::byte{140};
    if (leave_out) {
      bank.left_out.push_back(bank.experts[3]);
      bank.experts.pop_back();
    }
    return compile_tiny(source, folder).bank(1)->fixed_point;
  };
  const double bound = 9 * 192 * std::ldexp(1.0, 140 - 127);
  EXPECT_EQ(fixed_point(false), fixed_point_for(tiny_config(), bound));
  EXPECT_EQ(fixed_point(true), fixed_point(false));
}

TEST(Encode, NamesAWeightThatNoIntegerFormatCanHold) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    TinySource source;
    TrunkTensor& tensor = source.tensor("model.layers.0.mlp.up_proj.weight");
    store_little_endian(encode_bf16(bad),
                        &source.bytes_of(tensor.source)[size_t{2} * (5 * 32 + 7)]);
    EXPECT_NE(failure(source, int8_options())
                  .find("tensor model.layers.0.mlp.up_proj.weight: weight at row 5, column 7 is "),
              std::string::npos);
    Options ternary;
    ternary.ternary_trunk.trunk = Precision::kTernary;
    EXPECT_NE(failure(source, ternary).find(", ternary needs finite weights"), std::string::npos);
    EXPECT_EQ(failure(source), "no error");  // copied, it is the checkpoint's business
  }
}

TEST(Encode, NamesAScaleThatNoKernelCanUse) {
  const auto with_scale = [](unsigned scale, bool zero_codes) {
    TinySource source;
    const Expert& expert = source.model.banks[0].experts[2];
    // w2: row 3, group 1 of 9.
    source.bytes_of(expert.sources[3])[3 * 9 + 1] = static_cast<std::byte>(scale);
    if (zero_codes) {
      for (std::byte& byte :
           source.bytes_of(expert.sources[2]).subspan(size_t{16} * (3 * 9 + 1), 16)) {
        byte = std::byte{0x80};
      }
    }
    return failure(source);
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find("layer 1: expert 2.w2: " + part), std::string::npos) << message;
  };
  expect(with_scale(255, false), "scale at row 3, group 1 is 255 (NaN)");
  expect(with_scale(255, true), "scale at row 3, group 1 is 255 (NaN)");
  expect(with_scale(0, false), "scale at row 3, group 1 is 0, which only an all-zero group");
  EXPECT_EQ(with_scale(0, true), "no error");
  expect(with_scale(150, false), "scales span 32 exponents (118 to 150)");
  EXPECT_EQ(with_scale(149, false), "no error");
  EXPECT_EQ(with_scale(254, true), "no error");
}

}  // namespace
}  // namespace k3
