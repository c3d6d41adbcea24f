#include "passes/output_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace k3 {
namespace {

TEST(OutputError, IsTheHandWorkedOne) {
  const std::vector<float> gram = {2, 1, 1, 3};
  const std::vector<float> rows = {1, 0, 1, -1};
  const std::vector<double> energies = output_energies(rows.data(), 2, 2, 2, gram);
  EXPECT_EQ(energies, (std::vector<double>{2, 2 - 2 + 3}));
  // Errors (0.1, 0), (0, 0.1): 0.02 + 0.03 of 5.
  const std::vector<float> errors = {0.1F, 0, 0, 0.1F};
  EXPECT_NEAR(output_error(errors, rows, 2, gram), std::sqrt(0.05 / 5), 1e-7);
}

TEST(OutputError, IsZeroWhereRoundingLeavesLessThanNothing) {
  EXPECT_EQ(relative_error(-1e-9, 4), 0);
  EXPECT_EQ(relative_error(1, 4), 0.5);
}

TEST(OutputError, IsZeroWhereThereIsNoOutput) {
  EXPECT_EQ(output_error(std::vector<float>{1}, std::vector<float>{0}, 1, std::vector<float>{1}),
            0);
}

}  // namespace
}  // namespace k3
