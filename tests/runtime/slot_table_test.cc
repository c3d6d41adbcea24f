#include "runtime/slot_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <optional>
#include <random>

namespace k3 {
namespace {

bool anyone(int64_t /*slot*/) {
  return true;
}

// One look-up as the cache does it: whether the expert was there.
bool look_up(SlotTable& table, int64_t bank, int64_t expert) {
  table.use(bank, expert);
  const bool hit = table.find(bank, expert) >= 0;
  if (!hit) table.place(bank, expert, anyone);
  return hit;
}

// The list that anybody would write.
class PlainLru {
 public:
  explicit PlainLru(size_t capacity) : capacity_(capacity) {}
  bool look_up(int64_t key) {
    const auto at = std::find(keys_.begin(), keys_.end(), key);
    const bool hit = at != keys_.end();
    if (hit) keys_.erase(at);
    keys_.push_front(key);
    if (keys_.size() > capacity_) keys_.pop_back();
    return hit;
  }

 private:
  size_t capacity_;
  std::list<int64_t> keys_;
};

TEST(SlotTable, LruIsThePlainListOverAllBanks) {
  const std::vector<int64_t> banks = {20, 20, 7};
  for (const int64_t slots : {1, 3, 11, 46, 47}) {
    SlotTable table(EvictionPolicy::kLru, banks, slots);
    PlainLru plain(static_cast<size_t>(slots));
    std::minstd_rand random(1);
    int64_t hits = 0;
    for (int i = 0; i < 3000; ++i) {
      const auto bank = static_cast<int64_t>(random() % 3);
      const auto expert = static_cast<int64_t>(
          std::min(random(), random()) % static_cast<uint64_t>(banks[static_cast<size_t>(bank)]));
      const bool hit = look_up(table, bank, expert);
      ASSERT_EQ(hit, plain.look_up(bank * 100 + expert)) << "look-up " << i;
      hits += hit ? 1 : 0;
    }
    EXPECT_GT(hits, 0);
  }
}

TEST(SlotTable, LruPerLayerKeepsLayersFromEachOther) {
  const std::vector<int64_t> banks = {9, 9};
  SlotTable table(EvictionPolicy::kLruPerLayer, banks, 4);
  EXPECT_EQ(table.share(0), 2);
  EXPECT_EQ(table.share(1), 2);
  look_up(table, 0, 5);
  for (int64_t expert = 0; expert < 9; ++expert) look_up(table, 1, expert);
  EXPECT_TRUE(look_up(table, 0, 5));
  EXPECT_FALSE(look_up(table, 1, 0));
}

TEST(SlotTable, SlotsThatASmallLayerCannotUseGoToTheOthers) {
  const std::vector<int64_t> banks = {2, 9, 9};
  const SlotTable table(EvictionPolicy::kLruPerLayer, banks, 13);
  EXPECT_EQ(table.share(0), 2);
  EXPECT_EQ(table.share(1), 6);
  EXPECT_EQ(table.share(2), 5);
}

TEST(SlotTable, LfuKeepsWhatIsUsedOftenAndForgetsWhatWas) {
  const std::vector<int64_t> banks = {9};
  SlotTable table(EvictionPolicy::kLfuDecayed, banks, 2);
  const auto token = [&](int64_t expert) {
    table.visit(0);
    return look_up(table, 0, expert);
  };
  for (int i = 0; i < 5; ++i) token(0);
  for (int64_t expert = 1; expert < 9; ++expert) token(expert);
  EXPECT_TRUE(token(0));  // an LRU of two had lost it
  for (int i = 0; i < 20 * static_cast<int>(kUseHalfLife); ++i) token(1);
  for (int i = 0; i < 2; ++i) token(2);
  EXPECT_TRUE(token(2));
  EXPECT_FALSE(token(0));
}

TEST(SlotTable, LfuRemembersUsesOfExpertsThatWereEvicted) {
  const std::vector<int64_t> banks = {9};
  SlotTable table(EvictionPolicy::kLfuDecayed, banks, 1);
  for (int i = 0; i < 3; ++i) look_up(table, 0, 0);
  look_up(table, 0, 1);
  look_up(table, 0, 0);
  SlotTable two(EvictionPolicy::kLfuDecayed, banks, 2);
  for (const int64_t expert : {0, 0, 0, 1, 2, 0, 1}) look_up(two, 0, expert);
  EXPECT_GE(two.find(0, 0), 0);
  EXPECT_GE(two.find(0, 1), 0);
}

TEST(SlotTable, OnlyWhatMayBeEvictedIs) {
  const std::vector<int64_t> banks = {9};
  SlotTable table(EvictionPolicy::kLru, banks, 2);
  look_up(table, 0, 0);
  look_up(table, 0, 1);
  const int64_t pinned = table.find(0, 0);
  const int64_t slot = table.place(0, 2, [&](int64_t candidate) { return candidate != pinned; });
  EXPECT_NE(slot, pinned);
  EXPECT_EQ(table.find(0, 1), -1);
  EXPECT_EQ(table.place(0, 3, [](int64_t) { return false; }), -1);
  EXPECT_EQ(table.find(0, 3), -1);
  EXPECT_EQ(table.find(0, 0), pinned);
}

TEST(SlotTable, WhatWasPutFirstGoesFirstUnlessUsedAgain) {
  const std::vector<int64_t> banks = {9};
  for (const EvictionPolicy policy : {EvictionPolicy::kLru, EvictionPolicy::kLfuDecayed}) {
    SlotTable table(policy, banks, 3);
    for (const int64_t expert : {0, 1, 2, 2, 2}) look_up(table, 0, expert);
    table.put_first_to_go(table.find(0, 2));
    look_up(table, 0, 3);
    EXPECT_EQ(table.find(0, 2), -1);
    table.put_first_to_go(table.find(0, 3));
    table.use(0, 3);
    look_up(table, 0, 4);
    EXPECT_GE(table.find(0, 3), 0);
  }
}

TEST(SlotTable, ARemovedExpertLeavesItsSlotToTheNext) {
  const std::vector<int64_t> banks = {9};
  SlotTable table(EvictionPolicy::kLru, banks, 2);
  look_up(table, 0, 0);
  look_up(table, 0, 1);
  const int64_t slot = table.find(0, 1);
  table.remove(slot);
  EXPECT_EQ(table.find(0, 1), -1);
  EXPECT_EQ(table.place(0, 5, [](int64_t) { return false; }), slot);
}

}  // namespace
}  // namespace k3
