// Which instruction sets the *_cpu.cc files of the forward pass are compiled for; include it before
// Highway's headers.
//
// These files hold plain loops over the shared exact_ functions. Highway compiles each file once
// per target and picks one at run time; the compiler vectorises the loops and turns std::fma into
// an instruction. AVX-512, AVX2, NEON and SVE are worth a copy each. The SSE targets have no fused
// multiply-add and gain nothing over the portable copy, which calls libm's fma and serves every
// other machine; the newer AVX-512 and SVE2 targets gain too little for their compile time. Bits
// are equal on all of them: nothing is contracted or reassociated, so a vector lane computes what
// the scalar loop does.
#pragma once

#include "schema/highway_targets.h"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (K3_FOREIGN_TARGETS | HWY_SSE4 | HWY_AVX3_DL)

// Marks a loop function of such a file: every call below it is inlined, so that the exact_
// functions, compiled for the baseline elsewhere, are compiled here for the target at hand. Call no
// function template of std below it (std::min is one): without optimisation its copy for the target
// would be shared with code for every machine.
#define K3_FLATTEN __attribute__((flatten))

// Before a loop whose iterations touch distinct elements, also when the output is the input.
#ifdef __clang__
#define K3_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define K3_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

// Before a loop over the elements of an array that is to lie in registers.
#ifdef __clang__
#define K3_UNROLL _Pragma("clang loop unroll(full)")
#else
#define K3_UNROLL _Pragma("GCC unroll 16")
#endif
