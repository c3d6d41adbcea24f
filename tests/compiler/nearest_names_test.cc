#include "compiler/nearest_names.h"

#include <gtest/gtest.h>

namespace k3 {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("abc", "abc"), 0u);
  EXPECT_EQ(edit_distance("abc", "abd"), 1u);
  EXPECT_EQ(edit_distance("abc", "bc"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearestNames, ComeNearestFirstAndInListOrderWhereEqual) {
  const std::vector<std::string> names = {"gate", "down", "gane", "up", "gale"};
  EXPECT_EQ(nearest_names("gane", names, 3), (std::vector<std::string>{"gane", "gate", "gale"}));
  EXPECT_EQ(nearest_names("x", names, 9).size(), names.size());
  EXPECT_TRUE(nearest_names("x", {}, 3).empty());
}

}  // namespace
}  // namespace k3
