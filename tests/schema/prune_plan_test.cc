#include "schema/prune_plan.h"

#include <gtest/gtest.h>

#include "tests/thrown_message.h"

namespace k3 {
namespace {

PrunePlan plan() {
  return {.router_xxh3 = 0xfedcba9876543210,
          .experts = 4,
          .experts_per_token = 2,
          .score = "reap",
          .traces = {{0x11, 100}},
          .layers = {{1, {2, 0}, {3, 1}, {0.5, 1e-300, 0.75, 0.1}},
                     {3, {0, 1, 2, 3}, {}, {4, 3, 2, 1}}}};
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = format_prune_plan(plan());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  return thrown_message([&] { parse_prune_plan(text, "p"); });
}

TEST(PrunePlan, ComesBackAsItWasWritten) {
  EXPECT_EQ(parse_prune_plan(format_prune_plan(plan()), "p"), plan());
}

TEST(PrunePlan, WhatIsNotAPlanIsRefusedWithTheReason) {
  EXPECT_EQ(refusal(""), "p: is empty, expected a prune plan");
  EXPECT_EQ(refusal("[]"), "p: is not a JSON object");
  EXPECT_EQ(refusal(replaced("k3prune", "k3eval")), "p: kind is k3eval, expected k3prune");
  EXPECT_EQ(refusal(replaced("\"version\": 1", "\"version\": 2")),
            "p: version: is 2, expected 1 to 1");
  EXPECT_EQ(refusal(replaced("\"score\"", "\"scores\"")),
            "p: score: is missing or of another type, expected a string");
  EXPECT_EQ(refusal(replaced("\"experts\": 4", "\"experts\": 4, \"experts\": 4")),
            "p: experts: is there twice");
  EXPECT_EQ(refusal(replaced("\"experts\": 4", "\"experts\": 4, \"more\": 4")),
            "p: more: is not a member of a prune plan");
  EXPECT_EQ(refusal(replaced("fedcba98", "fedcba9g")),
            "p: router_xxh3: is fedcba9g76543210, expected 16 hexadecimal digits");
}

TEST(PrunePlan, ALayerThatDoesNotHaveEachExpertOnceIsRefused) {
  EXPECT_EQ(refusal(replaced("[3,1]", "[3,2]")),
            "p: layer 0: keeps 2 and drops 2 experts, expected each of 4 once");
  EXPECT_EQ(refusal(replaced("[3,1]", "[3,4]")), "p: layer 0: expert is 4, expected 0 to 3");
  EXPECT_EQ(refusal(replaced("[2,0],\"dropped\":[3,1]", "[2],\"dropped\":[3,1,0]")),
            "p: layer 0: keeps 1 experts, a token chooses 2");
  EXPECT_EQ(refusal(replaced("[4,3,2,1]", "[4,3,2]")), "p: layer 1: has 3 scores, expected 4");
  EXPECT_EQ(refusal(replaced("\"layer\":3", "\"layer\":1")),
            "p: layer 1: is of layer 1, behind one of layer 1");
}

TEST(PrunePlan, FitsItsOwnModelOnly) {
  constexpr uint64_t kHash = 0xfedcba9876543210;
  ModelConfig config;
  config.experts = 4;
  config.experts_per_token = 2;
  const std::vector<int64_t> layers = {1, 3};
  EXPECT_NO_THROW(check_plan_fits(plan(), "p", config, kHash, layers));
  EXPECT_EQ(thrown_message([&] { check_plan_fits(plan(), "p", config, 5, layers); }),
            "p: was made for the model with router hash fedcba9876543210, this one has "
            "0000000000000005");
  const std::vector<int64_t> more = {1, 2, 3};
  EXPECT_EQ(thrown_message([&] { check_plan_fits(plan(), "p", config, kHash, more); }),
            "p: says nothing of layer 2");
  const std::vector<int64_t> fewer = {1};
  EXPECT_EQ(thrown_message([&] { check_plan_fits(plan(), "p", config, kHash, fewer); }),
            "p: has 2 layers, the model has 1 with experts");
  config.experts = 3;
  EXPECT_EQ(thrown_message([&] { check_plan_fits(plan(), "p", config, kHash, layers); }),
            "p: a token chooses 2 of 4 experts, the model's 2 of 3");
  config.experts = 4;
  config.experts_per_token = 3;
  EXPECT_EQ(thrown_message([&] { check_plan_fits(plan(), "p", config, kHash, layers); }),
            "p: a token chooses 2 of 4 experts, the model's 3 of 4");
}

}  // namespace
}  // namespace k3
