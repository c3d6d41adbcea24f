// The vectors that rows of codes are multiplied with, and the few instructions of a target that
// Highway has no name for. Compiled once per target: include from a foreach_target file only.
//
// Arrays of registers need a vector size known when compiling, which rules SVE out; its machines
// run the NEON code.
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/row_products_cpu.h"

#if defined(K3_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_KERNELS_LANES_INL_H_
#undef K3_KERNELS_LANES_INL_H_
#else
#define K3_KERNELS_LANES_INL_H_
#endif

#define K3_HAS_VNNI (HWY_TARGET == HWY_AVX3_DL)
#define K3_HAS_AVX512 (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)

// Highway 1.0 looks for AVX512-VNNI before it runs this target but lets the compiler use only the
// 256-bit instructions of AVX-VNNI.
#if K3_HAS_VNNI && !defined(HWY_TARGET_STR_AVX3_DL) && !defined(K3_VNNI_TARGET_STR)
#define K3_VNNI_TARGET_STR
#undef HWY_TARGET_STR
#define HWY_TARGET_STR                                            \
  HWY_TARGET_STR_AVX3                                             \
  ",vpclmulqdq,avx512vbmi,avx512vbmi2,vaes,avxvnni,avx512bitalg," \
  "avx512vpopcntdq,avx512vnni"
#endif

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {  // so that calls are inlined in position-independent code, too

#if HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::CappedTag<int8_t, 64>;
using DU8 = hn::RebindToUnsigned<D8>;
using D16 = hn::RepartitionToWide<D8>;
using D32 = hn::RepartitionToWide<D16>;
using D64 = hn::RepartitionToWide<D32>;
using V8 = hn::Vec<D8>;
using VU8 = hn::Vec<DU8>;
using V16 = hn::Vec<D16>;
using V32 = hn::Vec<D32>;
using V64 = hn::Vec<D64>;
constexpr size_t kBytes = hn::MaxLanes(D8());  // of a vector: 16, 32 or 64

// Keeps GCC from loading what it holds a second time.
template <class V>
HWY_INLINE void keep_in_register(V& vector) {
#if HWY_ARCH_X86
  asm("" : "+v"(vector.raw));
#else
  (void)vector;
#endif
}

// The same, and the loads in their order, which the processor's prefetching goes by.
template <class V>
HWY_INLINE void keep_in_order(V& vector) {
#if HWY_ARCH_X86
  asm volatile("" : "+v"(vector.raw));
#else
  (void)vector;
#endif
}

// The processor's own prefetching keeps up with a loop whose steps are at least so long, of a
// single run of bytes, and is better than asking: what is asked for by instruction waits in the
// first level's few buffers. Loops that read several rows side by side have to ask.
constexpr int64_t kStrideBytes = 256;

// How far ahead of codes at `from` lies what is to be asked for.
inline int64_t distance_ahead(const std::byte* from, const ReadAhead& ahead) {
  if (ahead.end == nullptr || from + kPrefetchBytes < ahead.end) return kPrefetchBytes;
  if (ahead.next == nullptr) return 0;
  const auto behind_end = kPrefetchBytes - (ahead.end - from);
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(ahead.next) -
                              reinterpret_cast<uintptr_t>(from)) +
         behind_end;
}

// The same where rows are read side by side and take `bytes` together: to the same place in the
// rows that come that much later, for what lies in between may be read already.
inline int64_t beyond_rows(int64_t ahead, int64_t bytes) {
  return ahead == kPrefetchBytes && bytes > 0 ? align_up(ahead, bytes) : ahead;
}

// Addresses as numbers, for what is asked for may lie behind the end of an array.
HWY_INLINE void prefetch_ahead(const uint8_t* weights, int64_t distance = kPrefetchBytes) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(weights) + static_cast<uintptr_t>(distance);
  __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
}

// For codes that kTile vectors meet.
template <size_t kTile>
HWY_INLINE void prefetch_near(const uint8_t* weights) {
  if constexpr (kTile == 1) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(weights) + kNearBytes;
    __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 3);
  }
}

// sum + the products of a and b, added in pairs: which pairs is the target's choice, but they come
// from the same 128 bits as the lane that takes them.
HWY_INLINE V32 multiply_add(V16 a, V16 b, V32 sum) {
#if K3_HAS_VNNI
  return V32{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
#elif HWY_TARGET == K3_NEON
  return V32(
      vmlal_high_s16(vmlal_s16(sum.raw, vget_low_s16(a.raw), vget_low_s16(b.raw)), a.raw, b.raw));
#else
  V32 unused = hn::Zero(D32());
  return hn::ReorderWidenMulAccumulate(D32(), a, b, sum, unused);
#endif
}

// Digits of 0..8 times bytes of activations, added to sums that few bits suffice for. With VNNI a
// sum is a 32-bit lane of four products, else a 16-bit lane of two.
HWY_INLINE V16 add_byte_products(VU8 digits, V8 x, V16 sums) {
#if K3_HAS_VNNI
  return V16{_mm512_dpbusd_epi32(sums.raw, digits.raw, x.raw)};
#elif HWY_TARGET == K3_NEON
  const int8x16_t d = vreinterpretq_s8_u8(digits.raw);
  return V16(vmlal_high_s8(vmlal_s8(sums.raw, vget_low_s8(d), vget_low_s8(x.raw)), d, x.raw));
#elif HWY_TARGET == HWY_AVX3
  return hn::Add(sums, V16{_mm512_maddubs_epi16(digits.raw, x.raw)});
#elif HWY_TARGET == HWY_AVX2
  return hn::Add(sums, V16{_mm256_maddubs_epi16(digits.raw, x.raw)});
#else
  return hn::Add(sums, V16{_mm_maddubs_epi16(digits.raw, x.raw)});
#endif
}

HWY_INLINE V16 negate_byte_products(V16 sums) {
#if K3_HAS_VNNI
  return hn::BitCast(D16(), hn::Neg(hn::BitCast(D32(), sums)));
#else
  return hn::Neg(sums);
#endif
}

// `factor` in every lane that add_byte_products sums into, so that multiply_add(sums, factors, ...)
// multiplies each sum by it.
template <class D>
HWY_INLINE hn::Vec<D> spread_factor(D d16, uint8_t factor) {
#if K3_HAS_VNNI
  return hn::BitCast(d16, hn::Set(hn::RepartitionToWide<D>(), int32_t{factor}));
#else
  return hn::Set(d16, int16_t{factor});
#endif
}

HWY_INLINE int64_t sum_of_lanes(V64 sums) {
  return hn::GetLane(hn::SumOfLanes(D64(), sums));
}

// The sum of all 32-bit lanes, in 64 bits.
HWY_INLINE int64_t sum_of_lanes(V32 sums) {
  const V32 one = hn::Set(D32(), 1);
  const V32 odd = hn::BitCast(D32(), hn::ShiftRight<32>(hn::BitCast(D64(), sums)));
  return sum_of_lanes(hn::Add(hn::MulEven(sums, one), hn::MulEven(odd, one)));
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_LANES_INL_H_
