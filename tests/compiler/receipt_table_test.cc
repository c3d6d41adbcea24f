#include "compiler/receipt_table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace k3 {
namespace {

std::string first_line(const std::string& receipt) {
  std::ostringstream out;
  print_receipt({"k3eval", 0, receipt}, out);
  return out.str().substr(0, out.str().find('\n'));
}

TEST(ReceiptTable, CountsExpertsWhereTheReceiptHasACount) {
  EXPECT_EQ(first_line(R"({"backend": "cpu", "experts_kept": 1472, "texts": []})"),
            "receipt k3eval: backend cpu, 1,472 experts");
  EXPECT_EQ(first_line(R"({"backend": "cpu", "experts_kept": 1e300, "texts": []})"),
            "receipt k3eval: backend cpu");
}

}  // namespace
}  // namespace k3
