#include "passes/decisions.h"

#include <gtest/gtest.h>

#include "passes/options.h"

namespace k3 {
namespace {

TEST(Decisions, AreALinePerChoiceWithNumbersThatReadBack) {
  const Decisions decisions = {{"a.weight", "ternary_trunk", "int8", "asked for", 8.1},
                               {"bank of layer 1", "prune_experts", "keep 2 of 4", "why", 1e-9}};
  EXPECT_EQ(format_decisions(decisions),
            "subject\tpass\tchoice\treason\tnumber\n"
            "a.weight\tternary_trunk\tint8\tasked for\t8.1\n"
            "bank of layer 1\tprune_experts\tkeep 2 of 4\twhy\t1e-09\n");
}

TEST(Options, AreRecordedInAFixedOrder) {
  Options options;
  EXPECT_EQ(canonical_options(options),
            (std::vector<std::pair<std::string, std::string>>{
                {"trunk", "bf16"}, {"head", "bf16"}, {"experts", "exact"}}));
  options.ternary_trunk.head = Precision::kInt8;
  EXPECT_EQ(canonical_options(options)[1].second, "int8");
}

}  // namespace
}  // namespace k3
