#include "runtime/stop_strings.h"

#include <gtest/gtest.h>

#include "schema/error.h"

namespace k3 {
namespace {

TEST(StopStrings, TextPassesWhenNothingCanStopIt) {
  StopStrings stops({});
  EXPECT_EQ(stops.add("any text"), "any text");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, TheBeginningOfAStopStringIsHeldBackUntilItIsDecided) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.add("aE"), "a");
  EXPECT_EQ(stops.add("N"), "");
  EXPECT_EQ(stops.add("x"), "ENx");
  EXPECT_FALSE(stops.found());
}

TEST(StopStrings, NothingOfOrAfterTheStopStringComesOut) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.add("aEN"), "a");
  EXPECT_EQ(stops.add("Db"), "");
  EXPECT_TRUE(stops.found());
  EXPECT_EQ(stops.add("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, TheFirstOfSeveralInTheTextEnds) {
  StopStrings stops({"later", "soon"});
  EXPECT_EQ(stops.add("very soon, later"), "very ");
}

TEST(StopStrings, ARepeatedBeginningIsFollowedFromItsLastStart) {
  StopStrings stops({"aab"});
  EXPECT_EQ(stops.add("aaa"), "a");
  EXPECT_EQ(stops.add("b"), "");
  EXPECT_TRUE(stops.found());
}

TEST(StopStrings, WhatIsHeldComesOutAtTheEnd) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.add("fin EN"), "fin ");
  EXPECT_EQ(stops.finish(), "EN");
}

TEST(StopStrings, AnEmptyStopStringIsRefused) {
  EXPECT_THROW(StopStrings({""}), Error);
}

}  // namespace
}  // namespace k3
