#include "kernels/floating_point_mode.h"

#include <gtest/gtest.h>

#include <cfenv>

#include "schema/error.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace k3 {
namespace {

TEST(FloatingPointMode, TheDefaultModePasses) {
  EXPECT_NO_THROW(check_floating_point_mode());
}

TEST(FloatingPointMode, DirectedRoundingIsRefused) {
  for (int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    bool refused = false;
    try {
      check_floating_point_mode();
    } catch (const Error&) {
      refused = true;
    }
    std::fesetround(FE_TONEAREST);
    EXPECT_TRUE(refused) << "mode " << mode;
  }
}

#if defined(__x86_64__)
TEST(FloatingPointMode, FlushingSubnormalResultsOrOperandsIsRefused) {
  const unsigned saved = _mm_getcsr();
  constexpr unsigned kFlushResults = 0x8000;
  constexpr unsigned kFlushOperands = 0x0040;
  for (unsigned flag : {kFlushResults, kFlushOperands}) {
    _mm_setcsr(saved | flag);
    bool refused = false;
    try {
      check_floating_point_mode();
    } catch (const Error&) {
      refused = true;
    }
    _mm_setcsr(saved);
    EXPECT_TRUE(refused) << "flag " << flag;
  }
}
#endif

}  // namespace
}  // namespace k3
