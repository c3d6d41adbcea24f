// The one source of exp, tanh, sigmoid and softplus for the host, every vector width and every GPU.
//
// libm, libdevice and SVML round differently from one another and from version to version, so the
// exact numerics never call them: the functions below use only IEEE operations (add, multiply,
// divide, compare, bit moves) and an explicit fma, in double, without branches, and a compiler that
// does not contract must produce the same bits for them anywhere. They vectorise as plain loops.
//
// Range reduction: x = n ln 2 + r with integer n and |r| <= ln 2 / 2; n is read from the low bits
// of x / ln 2 + 1.5 * 2^52 and becomes 2^n by a shift into the exponent. Polynomials are Taylor's:
// in double, at a fixed degree whose remainder is below 2^-49, they need no fitting and their
// coefficients can be read off.
//
// Accuracy, measured against long double over 2^20 arguments a function: the double results are
// within 2^-51 of the true value (softplus: 2^-48.8), relatively, so the float rounded from one is
// the nearest float but for one argument in millions, and at most 0.5 + 2^-24 ulp off.
//
// Special values: NaN stays NaN (which NaN is no part of the contract), infinities give the limit,
// float results overflow to infinity and underflow through the subnormals as IEEE rounding says.
// The *_in_double functions hold exp's argument to [-700, 700], whose results any float rounding
// takes to 0 and infinity: exp_in_double(-infinity) is 1e-304, not 0.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "schema/host_device.h"

namespace k3 {

K3_HOST_DEVICE inline uint64_t double_bits(double value) {
#ifdef __CUDA_ARCH__
  return static_cast<uint64_t>(__double_as_longlong(value));
#else
  return std::bit_cast<uint64_t>(value);
#endif
}

K3_HOST_DEVICE inline double double_from_bits(uint64_t bits) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(static_cast<long long>(bits));
#else
  return std::bit_cast<double>(bits);
#endif
}

// e^x = power + power * fraction, with power = 2^n and fraction = e^r - 1.
struct SplitExp {
  double power;
  double fraction;
};

// Holds x to [-700, 700], where power is a normal double.
K3_HOST_DEVICE inline SplitExp split_exp(double x) {
  constexpr double kLimit = 700.0;
  constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefa39efp-1;  // ln 2 to 53 bits, and the rest
  constexpr double kLn2Low = 0x1.abc9e3b39803fp-56;
  constexpr double kIntegerShift = 0x1.8p+52;  // doubles of this size are whole numbers

  // One comparison, which a NaN passes: compilers vectorise it where they branch on two.
  x = std::fabs(x) > kLimit ? std::copysign(kLimit, x) : x;
  const double shifted = std::fma(x, kInverseLn2, kIntegerShift);
  const double n = shifted - kIntegerShift;
  const double r = std::fma(-n, kLn2Low, std::fma(-n, kLn2High, x));

  // e^r - 1 = r + r^2 (1/2! + r/3! + ... + r^11/13!); the rest is below r 2^-56.
  double sum = 1.0 / 6227020800.0;
  sum = std::fma(sum, r, 1.0 / 479001600.0);
  sum = std::fma(sum, r, 1.0 / 39916800.0);
  sum = std::fma(sum, r, 1.0 / 3628800.0);
  sum = std::fma(sum, r, 1.0 / 362880.0);
  sum = std::fma(sum, r, 1.0 / 40320.0);
  sum = std::fma(sum, r, 1.0 / 5040.0);
  sum = std::fma(sum, r, 1.0 / 720.0);
  sum = std::fma(sum, r, 1.0 / 120.0);
  sum = std::fma(sum, r, 1.0 / 24.0);
  sum = std::fma(sum, r, 1.0 / 6.0);
  sum = std::fma(sum, r, 1.0 / 2.0);
  constexpr uint64_t kExponentBias = 1023;
  constexpr int kMantissaBits = 52;
  return {double_from_bits((double_bits(shifted) + kExponentBias) << kMantissaBits),
          std::fma(r * r, sum, r)};
}

K3_HOST_DEVICE inline double exp_in_double(double x) {
  const SplitExp e = split_exp(x);
  return std::fma(e.power, e.fraction, e.power);
}

// 1 / (1 + e^-x). Exactly 1 from x = 36.8 on; exactly 1/2 at 0.
K3_HOST_DEVICE inline double sigmoid_in_double(double x) {
  return 1.0 / (1.0 + exp_in_double(-x));
}

// (e^2x - 1) / (e^2x - 1 + 2) for |x|, with the sign put back: odd by construction, tanh(+-0) =
// +-0, and exactly 1 once 2 no longer changes the sum, from |x| = 19.1 on.
K3_HOST_DEVICE inline double tanh_in_double(double x) {
  const SplitExp e = split_exp(2.0 * std::fabs(x));
  const double expm1 = std::fma(e.power, e.fraction, e.power - 1.0);
  return std::copysign(expm1 / (expm1 + 2.0), x);
}

// ln(1 + e^x) = max(x, 0) + ln(1 + u) with u = e^-|x| in (0, 1], and ln(1 + u) = 2 atanh(s) with
// s = u / (2 + u) <= 1/3: atanh's series in s^2 <= 1/9 needs no further reduction.
K3_HOST_DEVICE inline double softplus_in_double(double x) {
  const double u = exp_in_double(-std::fabs(x));
  const double s = u / (2.0 + u);
  const double s2 = s * s;
  // 1 + s^2/3 + s^4/5 + ... + s^26/27; the rest is below 2^-49.
  double sum = 1.0 / 27.0;
  sum = std::fma(sum, s2, 1.0 / 25.0);
  sum = std::fma(sum, s2, 1.0 / 23.0);
  sum = std::fma(sum, s2, 1.0 / 21.0);
  sum = std::fma(sum, s2, 1.0 / 19.0);
  sum = std::fma(sum, s2, 1.0 / 17.0);
  sum = std::fma(sum, s2, 1.0 / 15.0);
  sum = std::fma(sum, s2, 1.0 / 13.0);
  sum = std::fma(sum, s2, 1.0 / 11.0);
  sum = std::fma(sum, s2, 1.0 / 9.0);
  sum = std::fma(sum, s2, 1.0 / 7.0);
  sum = std::fma(sum, s2, 1.0 / 5.0);
  sum = std::fma(sum, s2, 1.0 / 3.0);
  sum = std::fma(sum, s2, 1.0);
  return std::fma(2.0 * s, sum, x > 0.0 ? x : 0.0);
}

// x sigmoid(x). An infinite x stays infinite: a broken activation is not to come out as zero.
K3_HOST_DEVICE inline double silu_in_double(double x) {
  return x / (1.0 + exp_in_double(-x));
}

// The same, rounded once to float.
K3_HOST_DEVICE inline float exact_exp(float x) {
  return static_cast<float>(exp_in_double(static_cast<double>(x)));
}
K3_HOST_DEVICE inline float exact_sigmoid(float x) {
  return static_cast<float>(sigmoid_in_double(static_cast<double>(x)));
}
K3_HOST_DEVICE inline float exact_tanh(float x) {
  return static_cast<float>(tanh_in_double(static_cast<double>(x)));
}
K3_HOST_DEVICE inline float exact_softplus(float x) {
  return static_cast<float>(softplus_in_double(static_cast<double>(x)));
}
K3_HOST_DEVICE inline float exact_silu(float x) {
  return static_cast<float>(silu_in_double(static_cast<double>(x)));
}

}  // namespace k3
