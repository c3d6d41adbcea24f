// The instruction sets that code for Highway is compiled for, whatever Highway's version: include
// it before foreach_target.h, and leave K3_FOREIGN_TARGETS out of what is compiled.
//
// Later versions know more targets, for which no file has code, and another fallback than
// HWY_SCALAR, which runs the exact_ functions. Two decisions hold for all files of a program and
// are made where it is built: HWY_BROKEN_EMU128=1 keeps that fallback, HWY_WANT_AVX3_DL offers
// AVX-512 with VNNI to the files that have code for it.
#pragma once

#include "hwy/detect_targets.h"

#if !HWY_BROKEN_EMU128 || !defined(HWY_WANT_AVX3_DL)
#error "build with HWY_BROKEN_EMU128=1 and HWY_WANT_AVX3_DL"
#endif

// What an older version does not know is no target.
#ifndef HWY_SSE2
#define HWY_SSE2 0
#endif
#ifndef HWY_AVX3_ZEN4
#define HWY_AVX3_ZEN4 0
#endif
#ifndef HWY_AVX3_SPR
#define HWY_AVX3_SPR 0
#endif
#ifndef HWY_AVX10_2
#define HWY_AVX10_2 0
#endif
#ifndef HWY_AVX10_2_512
#define HWY_AVX10_2_512 0
#endif
#ifndef HWY_NEON_BF16
#define HWY_NEON_BF16 0
#endif

// NEON is one target, or one with AES, of which there is no need, and one without.
#ifdef HWY_NEON_WITHOUT_AES
#define K3_NEON HWY_NEON_WITHOUT_AES
#define K3_NEON_WITH_AES HWY_NEON
#else
#define K3_NEON HWY_NEON
#define K3_NEON_WITH_AES 0
#endif

// The newer AVX-512 and SVE2 targets gain too little for their compile time.
#define K3_FOREIGN_TARGETS                                                               \
  (HWY_SSE2 | HWY_SSSE3 | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_AVX10_2_512 | \
   K3_NEON_WITH_AES | HWY_NEON_BF16 | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
