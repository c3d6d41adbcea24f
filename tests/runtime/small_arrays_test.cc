#include "runtime/small_arrays.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace k3 {
namespace {

TEST(SmallArrays, KeepsCopiesSideBySideAndAligned) {
  SmallArrays arrays;
  const std::byte* previous = nullptr;
  std::vector<const std::byte*> kept;
  for (const int64_t size : {0, 1, 63, 64, 65, 1000}) {
    const std::vector<std::byte> bytes(static_cast<size_t>(size), static_cast<std::byte>(size));
    const std::byte* copy = arrays.keep(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(copy) % 64, 0);
    EXPECT_NE(copy, bytes.data());
    if (previous != nullptr) {
      EXPECT_LT(copy - previous, 192);
    }
    previous = copy;
    kept.push_back(copy);
  }
  EXPECT_EQ(arrays.size_bytes(), 0 + 1 + 63 + 64 + 65 + 1000);
  EXPECT_EQ(kept[4][64], static_cast<std::byte>(65));
  EXPECT_EQ(kept[5][999], static_cast<std::byte>(1000 & 0xff));
}

TEST(SmallArrays, WhatIsKeptStaysWhileOthersCome) {
  SmallArrays arrays;
  std::vector<std::byte> bytes(AlignedBytes::kHugePage - 1);
  std::vector<const std::byte*> kept;
  for (int i = 0; i < 40; ++i) {  // more than one chunk holds
    std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(i));
    kept.push_back(arrays.keep(bytes));
  }
  for (int i = 0; i < 40; ++i) {
    const std::byte* copy = kept[static_cast<size_t>(i)];
    EXPECT_EQ(std::count(copy, copy + bytes.size(), static_cast<std::byte>(i)), std::ssize(bytes));
  }
  arrays.clear();
  EXPECT_EQ(arrays.size_bytes(), 0);
}

}  // namespace
}  // namespace k3
