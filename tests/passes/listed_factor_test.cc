#include "passes/listed_factor.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/forced_target.h"
#include "tests/passes/random_layer.h"

namespace k3 {
namespace {

TEST(ListedFactor, LeavesOutZerosWithoutChangingAValue) {
  constexpr int64_t kRows = 19;
  constexpr int64_t kCols = 251;
  constexpr int64_t kDepth = 160;
  const std::vector<float> b = random_weights(kDepth * kCols, 2);
  for (const int64_t every : {1, 2, 7, 50, 100000}) {
    std::vector<float> a = random_weights(kRows * kDepth, 1);
    int64_t terms = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      if (static_cast<int64_t>(i) % every != every - 1) a[i] = 0;
      if (a[i] != 0) ++terms;
    }
    for (const int64_t target : testable_targets()) {
      const ForcedTarget forced(target);
      const std::vector<float> start = random_weights(kRows * kCols, 3);
      std::vector<float> want = start;
      std::vector<float> got = start;
      add_float_product(kRows, kCols, kDepth, {a.data(), kDepth}, {b.data(), kCols}, want.data(),
                        kCols);
      const ListedFactor listed(kRows, kDepth, {a.data(), kDepth});
      EXPECT_EQ(listed.empty(), terms == 0);
      const double count = listed.add_product_with(kCols, {b.data(), kCols}, got.data(), kCols);
      EXPECT_EQ(got, want) << "one in " << every;
      const int64_t taken = every <= 2 ? kRows * kDepth : terms;
      EXPECT_EQ(count, static_cast<double>(taken * kCols)) << "one in " << every;
    }
  }
}

}  // namespace
}  // namespace k3
