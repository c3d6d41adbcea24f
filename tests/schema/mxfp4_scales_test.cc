#include "schema/mxfp4_scales.h"

#include <gtest/gtest.h>

#include <vector>

namespace k3 {
namespace {

// One row of groups, each of one repeated code byte.
struct Groups {
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
  Groups& add(uint8_t code_byte, uint8_t scale) {
    codes.insert(codes.end(), 16, code_byte);
    scales.push_back(scale);
    return *this;
  }
  ScaleFault scan(ScaleRange& range) const {
    return scan_scales(codes.data(), scales.data(), 1, static_cast<int64_t>(scales.size()), range);
  }
};

TEST(Mxfp4Scales, LeastAndGreatestCountOnlyGroupsThatAreNotAllZero) {
  ScaleRange range;
  const Groups groups =
      Groups().add(0x00, 3).add(0x21, 120).add(0x88, 200).add(0x80, 7).add(0x11, 122).add(0x10,
                                                                                          118);
  EXPECT_FALSE(groups.scan(range).found);
  EXPECT_EQ(range.least, 118);
  EXPECT_EQ(range.greatest, 122);
}

TEST(Mxfp4Scales, AMatrixOfZerosHasNoLeastScale) {
  ScaleRange range;
  EXPECT_FALSE(Groups().add(0x00, 0).add(0x08, 99).scan(range).found);
  EXPECT_EQ(range.least, 0);
  EXPECT_EQ(range.span(), 0);
}

TEST(Mxfp4Scales, Scale255IsAFaultEvenInAnAllZeroGroup) {
  ScaleRange range;
  const ScaleFault fault = Groups().add(0x11, 120).add(0x00, 255).scan(range);
  EXPECT_TRUE(fault.found);
  EXPECT_EQ(fault.group, 1);
  EXPECT_EQ(fault.scale, 255);
}

TEST(Mxfp4Scales, Scale0IsAFaultOutsideAllZeroGroups) {
  ScaleRange range;
  EXPECT_FALSE(Groups().add(0x80, 0).scan(range).found);
  EXPECT_TRUE(Groups().add(0x01, 0).scan(range).found);
}

}  // namespace
}  // namespace k3
