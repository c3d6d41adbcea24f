#include "passes/weight_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/thrown_message.h"
#include "tests/tiny_model.h"

namespace k3 {
namespace {

constexpr const char* kDown = "model.layers.0.mlp.down_proj.weight";  // [32, 48]

std::vector<double> all_rows(const Model& model, const TrunkTensor& tensor,
                             int64_t panel_bytes = WeightRows::kPanelBytes) {
  WeightRows source(model, tensor, {}, panel_bytes);
  std::vector<double> rows(static_cast<size_t>(source.rows() * source.cols()));
  source.read(0, std::span(rows));
  return rows;
}

// Q W, one column of W after the other.
std::vector<double> rotated_outputs(const Rotation& rotation, std::vector<double> matrix) {
  const RotationMatrix q(rotation);
  const size_t rows = static_cast<size_t>(rotation.width);
  const size_t cols = matrix.size() / rows;
  std::vector<double> column(rows);
  for (size_t col = 0; col < cols; ++col) {
    for (size_t row = 0; row < rows; ++row) column[row] = matrix[row * cols + col];
    q.apply(column);
    for (size_t row = 0; row < rows; ++row) matrix[row * cols + col] = column[row];
  }
  return matrix;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-15) << i;
}

TEST(WeightRows, UntouchedRowsAreTheCheckpointsOwn) {
  const TempFolder folder;
  TinySource source;
  source.open(folder);
  const TrunkTensor& tensor = source.tensor(kDown);
  WeightRows rows(source.model, tensor);
  std::vector<float> got(2 * 48);
  rows.read(5, std::span(got));
  const auto bytes = source.bytes_of(tensor.source);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i], decode_bf16(load_little_endian<uint16_t>(&bytes[2 * (5 * 48 + i)])));
  }
}

TEST(WeightRows, GainAndInputRotationActOnEachRow) {
  const TempFolder folder;
  TinySource source;
  source.open(folder);
  TrunkTensor& tensor = source.tensor("model.layers.0.mlp.gate_proj.weight");  // [48, 32]
  const std::vector<double> plain = all_rows(source.model, tensor);
  const TrunkTensor& norm = source.tensor("model.layers.0.post_attention_layernorm.weight");
  const std::vector<double> gain = all_rows(source.model, norm);
  tensor.folding.gain = static_cast<size_t>(&norm - source.model.trunk.data());
  tensor.folding.inputs = Rotation{32, 32, 6};
  std::vector<double> want = plain;
  const RotationMatrix q(*tensor.folding.inputs);
  for (size_t row = 0; row < 48; ++row) {
    const auto line = std::span(want).subspan(row * 32, 32);
    for (size_t col = 0; col < 32; ++col) line[col] *= gain[col];
    q.apply(line);
  }
  expect_near(all_rows(source.model, tensor), want);
}

// However little memory there is, down to a row.
TEST(WeightRows, RotatedOutputsAreTheWholeProductInPanelsOfAnySize) {
  const TempFolder folder;
  TinySource source;
  source.open(folder);
  TrunkTensor& tensor = source.tensor(kDown);
  const std::vector<double> plain = all_rows(source.model, tensor);
  for (const Rotation& rotation :
       {Rotation{32, 32, 1}, Rotation{32, 8, 1}, Rotation{32, 1, 1}, Rotation{32, 8, {}}}) {
    tensor.folding.outputs = rotation;
    const std::vector<double> want = rotated_outputs(rotation, plain);
    for (const int64_t panel_rows : {1, 2, 3, 7, 8, 20, 32, 100}) {
      SCOPED_TRACE(panel_rows);
      expect_near(all_rows(source.model, tensor, panel_rows * 48 * 8), want);
    }
  }
}

TEST(WeightRows, RotatedOutputsCanBeReadInAnyOrder) {
  const TempFolder folder;
  TinySource source;
  source.open(folder);
  TrunkTensor& tensor = source.tensor(kDown);
  tensor.folding.outputs = Rotation{32, 32, 1};
  tensor.folding.inputs = Rotation{48, 16, {}};
  const std::vector<double> whole = all_rows(source.model, tensor, 4 * 48 * 8);
  WeightRows rows(source.model, tensor, {}, 4 * 48 * 8);
  std::vector<double> got(3 * 48);
  for (const size_t first : {20u, 0u, 7u, 29u}) {
    rows.read(static_cast<int64_t>(first), std::span(got));
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], whole[first * 48 + i]) << first;
  }
}

TEST(WeightRows, TheSourceIsSeenOnceAndInOrder) {
  const TempFolder folder;
  TinySource source;
  source.open(folder);
  TrunkTensor& tensor = source.tensor(kDown);
  for (const bool rotates : {false, true}) {
    if (rotates) tensor.folding.outputs = Rotation{32, 32, 1};
    std::vector<std::byte> seen;
    WeightRows rows(
        source.model, tensor,
        [&](std::span<const std::byte> bytes) {
          seen.insert(seen.end(), bytes.begin(), bytes.end());
        },
        4 * 48 * 8);
    std::vector<float> some(8 * 48);
    for (const int64_t first : {0, 8, 16, 24}) rows.read(first, std::span(some));
    const auto bytes = source.bytes_of(tensor.source);
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), bytes.begin(), bytes.end()));
  }
}

TEST(WeightRows, AHashOfTheSourceNamesTheBasisToo) {
  const TempFolder folder;
  TinySource source;
  source.open(folder);
  TrunkTensor& tensor = source.tensor(kDown);
  const auto hash = [&] {
    Xxh3Stream stream;
    hash_folding(source.model, tensor, stream);
    return stream.digest();
  };
  std::vector<uint64_t> hashes = {hash()};
  EXPECT_EQ(hashes[0], xxh3({}));
  tensor.folding.outputs = Rotation{32, 32, 1};
  hashes.push_back(hash());
  tensor.folding.outputs = Rotation{32, 32, 2};
  hashes.push_back(hash());
  tensor.folding.inputs = Rotation{48, 16, {}};
  hashes.push_back(hash());
  tensor.folding.inputs = Rotation{48, 16, 0};
  hashes.push_back(hash());
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::adjacent_find(hashes.begin(), hashes.end()), hashes.end());
}

TEST(WeightRows, WhatIsNotFiniteIsNamedBeforeARotationSpreadsIt) {
  const TempFolder folder;
  TinySource source;
  TrunkTensor& tensor = source.tensor(kDown);
  store_little_endian(uint16_t{0x7f80}, &source.bytes_of(tensor.source)[2 * (3 * 48 + 2)]);
  source.open(folder);
  tensor.folding.outputs = Rotation{32, 32, 1};
  const std::string message = thrown_message([&] { all_rows(source.model, tensor); });
  EXPECT_NE(message.find(std::string(kDown) +
                         ": weight at row 3, column 2 is inf, rotation needs finite weights"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace k3
