#include "runtime/capture_grams.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schema/error.h"
#include "tests/temp_folder.h"

namespace k3 {
namespace {

// Wide enough for two pieces of the triangle and three of the square.
TEST(CaptureGrams, MemoryDecidesHowOftenTokensAreSweptAndNothingElse) {
  constexpr int64_t kWidth = 1500;
  constexpr int64_t kTokens = 7;
  const TempFolder folder;
  RowStore in_memory(kTokens, kWidth);
  RowStore on_disk(folder.path("rows"), kTokens, kWidth, RowStore::Keeping::kTemporary);
  std::vector<float> rows(static_cast<size_t>(kTokens * kWidth));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i * i % 1009) - 500.0F;
  in_memory.write(0, kTokens, rows.data());
  for (int64_t t = 0; t < kTokens; ++t) on_disk.write(t, 1, rows.data() + t * kWidth);
  const std::vector<int16_t> exponents(static_cast<size_t>(kWidth));

  for (const bool triangular : {true, false}) {
    std::vector<std::vector<uint64_t>> hashes;
    std::vector<int64_t> products;
    for (const int64_t memory_bytes : {int64_t{1} << 30, int64_t{0}}) {
      const RowStore& store = memory_bytes != 0 ? in_memory : on_disk;
      const GramSide side{&store, exponents};
      CalibrationWriter writer(folder.path("sums"));
      GramCost cost;
      hashes.emplace_back();
      for (const Extent& piece :
           write_gram({kWidth, triangular}, side, side, {1, kTokens}, memory_bytes, writer, cost)) {
        hashes.back().push_back(piece.xxh3);
      }
      products.push_back(cost.products);
    }
    EXPECT_EQ(hashes[0], hashes[1]);
    EXPECT_EQ(hashes[0].size(), triangular ? 2u : 3u);
    EXPECT_EQ(products[0], products[1]);
  }
}

TEST(RowStore, ATemporaryFileGoesWithItsStoreAndAKeptOneIsCheckedForItsSize) {
  const TempFolder folder;
  const std::string path = folder.path("rows");
  const float row[] = {1, 2};
  {
    RowStore kept(path, 3, 2, RowStore::Keeping::kCreate);
    kept.write(2, 1, row);
  }
  {
    const RowStore again(path, 3, 2, RowStore::Keeping::kOpen);
    float read[2] = {};
    again.read(2, 1, read);
    EXPECT_EQ(read[1], 2);
    again.read(0, 1, read);
    EXPECT_EQ(read[1], 0);
  }
  EXPECT_THROW(RowStore(path, 4, 2, RowStore::Keeping::kOpen), Error);
  { const RowStore temporary(path, 3, 2, RowStore::Keeping::kTemporary); }
  EXPECT_THROW(RowStore(path, 3, 2, RowStore::Keeping::kOpen), Error);
}

}  // namespace
}  // namespace k3
