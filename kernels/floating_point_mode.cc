// Asks the arithmetic, not the control register: the same code then serves x86's MXCSR, Arm's FPCR
// and whatever comes, and fegetround() does not see MXCSR at all. volatile keeps the compiler from
// computing the answers itself.
#include "kernels/floating_point_mode.h"

#include <limits>

#include "schema/error.h"

namespace k3 {
namespace {

template <class Real>
void check(const char* type) {
  volatile Real smallest_normal = std::numeric_limits<Real>::min();
  volatile Real smallest = std::numeric_limits<Real>::denorm_min();
  volatile Real half = Real(0.5);
  volatile Real halved = smallest_normal * half;
  if (halved == 0) {
    throw Error("floating-point mode: ", type,
                ": subnormal results are flushed to zero, expected IEEE results");
  }
  volatile Real two_to_the_digits = Real(1) / std::numeric_limits<Real>::epsilon();
  volatile Real scaled = smallest * two_to_the_digits;
  if (scaled == 0) {
    throw Error("floating-point mode: ", type,
                ": subnormal operands are read as zero, expected IEEE operands");
  }
  // Above 1 a quarter of the last place must vanish and three quarters must round up, on both
  // sides of zero; each other mode gets one of the four wrong.
  volatile Real one = 1;
  volatile Real quarter = std::numeric_limits<Real>::epsilon() / 4;
  volatile Real three_quarters = quarter * 3;
  volatile Real next = one + 4 * quarter;
  volatile Real up_quarter = one + quarter;
  volatile Real up_three = one + three_quarters;
  volatile Real down_quarter = -one - quarter;
  volatile Real down_three = -one - three_quarters;
  if (up_quarter != one || up_three != next || down_quarter != -one || down_three != -next) {
    throw Error("floating-point mode: ", type, ": rounding is directed, expected to nearest");
  }
}

}  // namespace

void check_floating_point_mode() {
  check<float>("float");
  check<double>("double");
}

}  // namespace k3
