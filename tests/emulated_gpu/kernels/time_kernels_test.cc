#include "tests/gpu/time_kernels.h"

#include <gtest/gtest.h>

#include <sstream>

namespace k3::test {
namespace {

TEST(TimeKernels, PrintsALineForEachFormatAndComparison) {
  std::ostringstream out;
  time_kernels({.small = true}, out);
  const std::string table = out.str();
  for (const char* line :
       {"product, ternary ", "product, ternary2 ", "product, int8 ", "product, mxfp4 ",
        "product, bf16 ", "product, f32 ", "read only, ", "in double", "a thread a row",
        "16 routed experts, mxfp4", "host, plain loops"}) {
    EXPECT_NE(table.find(line), std::string::npos) << line << " is missing in\n" << table;
  }
}

}  // namespace
}  // namespace k3::test
