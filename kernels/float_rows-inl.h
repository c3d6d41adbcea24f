// Rows of bf16 and f32 against float activations, in the lane order of lane_sum.h.
//
// Products are exact in double, so MulAdd may fuse (AVX2, AVX-512, NEON) or not (SSE4). The cost is
// in making doubles: activations are widened once for all rows, and two rows share their loads but
// where a row is narrow.
// bf16 lies two to a 32-bit word, whose upper half is a float as it stands and whose lower half is
// one after a shift, so words give a vector of odd and a vector of even inputs without a shuffle;
// the activations are arranged to match, and lanes are put back in order at the end of the row.
// Doubles fill the first-level cache soon, so rows take a stretch of columns at a time and their
// lanes wait in memory for the next.
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/lane_sum.h"
#include "kernels/simd_targets.h"
#include "schema/formats/bf16.h"

#if defined(K3_KERNELS_FLOAT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef K3_KERNELS_FLOAT_ROWS_INL_H_
#undef K3_KERNELS_FLOAT_ROWS_INL_H_
#else
#define K3_KERNELS_FLOAT_ROWS_INL_H_
#endif

#include "kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace k3::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

using DF64 = hn::CappedTag<double, 8>;
using VF64 = hn::Vec<DF64>;
using DF32 = hn::Rebind<float, DF64>;
constexpr size_t kDoubles = hn::MaxLanes(DF64());
constexpr size_t kLaneVectors = kLanes / kDoubles;

// The tree of reduce_lanes from a vector of lanes on.
template <class D>
HWY_INLINE double add_halves(D d, hn::Vec<D> lanes) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(lanes);
  } else {
    const hn::Half<D> half;
    return add_halves(half, hn::Add(hn::LowerHalf(half, lanes), hn::UpperHalf(half, lanes)));
  }
}

// For each format, a unit is two vectors of doubles: load gives both of a unit of weights, read
// once and in order if asked to, as is worth it where no other row shares the activations.
// input_of(i) is the input of a unit that lies on place i of the two. add_unit is the tree from a
// unit's lanes on. Up to kNarrowInputs activations leave the first-level cache to the weights, so
// that rows can be taken one by one.
struct F32Weights {
  using Weight = float;
  static constexpr int64_t kNarrowInputs = 2048;
  static size_t input_of(size_t place) { return place; }
  static double one(float weight) { return static_cast<double>(weight); }
  template <bool kInOrder>
  static HWY_INLINE void load(const float* w, VF64& first, VF64& second) {
    first = hn::PromoteTo(DF64(), hn::LoadU(DF32(), w));
    second = hn::PromoteTo(DF64(), hn::LoadU(DF32(), w + kDoubles));
  }
  static HWY_INLINE double add_unit(VF64 first, VF64 second) {
    return add_halves(DF64(), hn::Add(first, second));
  }
};

struct Bf16Weights {
  using Weight = uint16_t;
  static constexpr int64_t kNarrowInputs = 1024;
  static size_t input_of(size_t place) {
    return place < kDoubles ? 2 * place + 1 : 2 * (place - kDoubles);
  }
  static double one(uint16_t weight) { return static_cast<double>(decode_bf16(weight)); }
  template <bool kInOrder>
  static HWY_INLINE void load(const uint16_t* w, VF64& first, VF64& second) {
    const hn::Rebind<uint32_t, DF64> du32;
    const hn::Repartition<uint16_t, decltype(du32)> du16;
    auto words = hn::BitCast(du32, hn::LoadU(du16, w));
    if constexpr (kInOrder) keep_in_order(words);
    const auto odd = hn::And(words, hn::Set(du32, 0xffff0000U));
    const auto even = hn::ShiftLeft<16>(words);
    first = hn::PromoteTo(DF64(), hn::BitCast(DF32(), odd));
    second = hn::PromoteTo(DF64(), hn::BitCast(DF32(), even));
  }
  static HWY_INLINE double add_unit(VF64 odd, VF64 even) {
    return add_halves(DF64(), even) + add_halves(DF64(), odd);
  }
};

// The whole units of kLanes inputs of x, as doubles; what is left over is read as floats.
template <class Weights>
void arrange_floats(const float* x, int64_t cols, double* arranged) {
  const int64_t whole = cols / kLanes * kLanes;
  for (int64_t begin = 0; begin < whole; begin += 2 * static_cast<int64_t>(kDoubles)) {
    for (size_t place = 0; place < 2 * kDoubles; ++place) {
      arranged[static_cast<size_t>(begin) + place] =
          static_cast<double>(x[static_cast<size_t>(begin) + Weights::input_of(place)]);
    }
  }
}

// The lanes of kRows rows for kTile vectors.
template <size_t kRows, size_t kTile>
using FloatLanes = VF64[kRows][kTile][kLaneVectors];

// Adds a unit of kLanes inputs of kRows rows, from input `c` on, to their lanes, for kTile arranged
// vectors.
//
// Loops over registers are unrolled by request: left to itself, GCC keeps the array of sums in
// memory and writes it back in every step, which takes longer than the arithmetic.
template <class Weights, size_t kRows, size_t kTile>
HWY_INLINE void add_unit_to_lanes(const typename Weights::Weight* const* w, int64_t c,
                                  const double* const* x, FloatLanes<kRows, kTile>& sums) {
  K3_UNROLL
  for (size_t v = 0; v < kLaneVectors; v += 2) {
    const size_t at = static_cast<size_t>(c) + v * kDoubles;
    K3_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      VF64 first;
      VF64 second;
      Weights::template load<kRows * kTile == 1>(w[r] + at, first, second);
      K3_UNROLL
      for (size_t t = 0; t < kTile; ++t) {
        sums[r][t][v] = hn::MulAdd(first, hn::LoadU(DF64(), x[t] + at), sums[r][t][v]);
        sums[r][t][v + 1] =
            hn::MulAdd(second, hn::LoadU(DF64(), x[t] + at + kDoubles), sums[r][t][v + 1]);
      }
    }
  }
}

// Adds the inputs [begin, end) of kRows rows, stride_bytes apart, alike. Both ends are multiples of
// kLanes.
template <class Weights, size_t kRows, size_t kTile>
HWY_INLINE void add_to_lanes(const std::byte* row, int64_t stride_bytes, int64_t begin, int64_t end,
                             int64_t ahead, const double* const* x,
                             FloatLanes<kRows, kTile>& sums) {
  const typename Weights::Weight* w[kRows];
  K3_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    w[r] = reinterpret_cast<const typename Weights::Weight*>(row + static_cast<int64_t>(r) *
                                                                       stride_bytes);
  }
  for (int64_t c = begin; c < end; c += kLanes) {
    K3_UNROLL
    for (size_t r = 0; r < kRows; ++r)
      prefetch_ahead(reinterpret_cast<const uint8_t*>(w[r] + c), ahead);
    add_unit_to_lanes<Weights, kRows, kTile>(w, c, x, sums);
  }
}

// The same with lanes in memory: lanes[row * kTile + t] holds kLanes lanes in the order of the
// registers, and starts from zero where `begin` is 0.
template <class Weights, size_t kRows, size_t kTile>
void add_float_rows(const std::byte* row, int64_t stride_bytes, int64_t begin, int64_t end,
                    int64_t ahead, const double* const* x, double (*lanes)[kLanes]) {
  FloatLanes<kRows, kTile> sums;
  K3_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    K3_UNROLL
    for (size_t t = 0; t < kTile; ++t) {
      K3_UNROLL
      for (size_t v = 0; v < kLaneVectors; ++v) {
        sums[r][t][v] =
            begin == 0 ? hn::Zero(DF64()) : hn::LoadU(DF64(), lanes[r * kTile + t] + v * kDoubles);
      }
    }
  }
  add_to_lanes<Weights, kRows, kTile>(row, stride_bytes, begin, end, ahead, x, sums);
  K3_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    K3_UNROLL
    for (size_t t = 0; t < kTile; ++t) {
      K3_UNROLL
      for (size_t v = 0; v < kLaneVectors; ++v) {
        hn::StoreU(sums[r][t][v], DF64(), lanes[r * kTile + t] + v * kDoubles);
      }
    }
  }
}

// The sum of a row that ends with a unit of kLanes.
template <class Weights>
HWY_INLINE double add_lanes(VF64 (&lanes)[kLaneVectors]) {
  K3_UNROLL
  for (size_t stride = kLaneVectors / 2; stride >= 2; stride /= 2) {
    K3_UNROLL
    for (size_t v = 0; v < stride; ++v) lanes[v] = hn::Add(lanes[v], lanes[v + stride]);
  }
  return Weights::add_unit(lanes[0], lanes[1]);
}

// sums[r] = the sum of row r of kRows whole rows, for one vector: a row's end then costs a few
// instructions, which the next row's beginning overlaps.
template <class Weights, size_t kRows>
void sum_whole_rows(const std::byte* row, int64_t stride_bytes, int64_t cols, int64_t ahead,
                    const double* x, double* sums) {
  FloatLanes<kRows, 1> lanes;
  K3_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    K3_UNROLL
    for (size_t v = 0; v < kLaneVectors; ++v) lanes[r][0][v] = hn::Zero(DF64());
  }
  add_to_lanes<Weights, kRows, 1>(row, stride_bytes, 0, cols, ahead, &x, lanes);
  K3_UNROLL
  for (size_t r = 0; r < kRows; ++r) sums[r] = add_lanes<Weights>(lanes[r][0]);
}

// The sum of one row of at most Weights::kNarrowInputs inputs, for one vector. Such rows are read
// one behind the other, in steps of kStrideBytes, which the processor recognizes.
template <class Weights>
double sum_narrow_row(const std::byte* row, int64_t cols, const double* x) {
  using Weight = typename Weights::Weight;
  constexpr int64_t kStep = kStrideBytes / static_cast<int64_t>(sizeof(Weight));
  const auto* w = reinterpret_cast<const Weight*>(row);
  FloatLanes<1, 1> lanes;
  K3_UNROLL
  for (size_t v = 0; v < kLaneVectors; ++v) lanes[0][0][v] = hn::Zero(DF64());
  int64_t c = 0;
  for (; c + kStep <= cols; c += kStep) {
    K3_UNROLL
    for (int64_t unit = 0; unit < kStep; unit += kLanes) {
      add_unit_to_lanes<Weights, 1, 1>(&w, c + unit, &x, lanes);
    }
  }
  for (; c < cols; c += kLanes) add_unit_to_lanes<Weights, 1, 1>(&w, c, &x, lanes);
  return add_lanes<Weights>(lanes[0][0]);
}

// The sum of one row for one vector: its lanes, put in order, and the inputs [whole, cols).
template <class Weights>
double finish_float_row(const std::byte* row, int64_t whole, int64_t cols, const float* values,
                        const double* lanes) {
  if (whole == cols) {
    VF64 in_registers[kLaneVectors];
    K3_UNROLL
    for (size_t v = 0; v < kLaneVectors; ++v) {
      in_registers[v] = hn::LoadU(DF64(), lanes + v * kDoubles);
    }
    return add_lanes<Weights>(in_registers);
  }
  const auto* w = reinterpret_cast<const typename Weights::Weight*>(row);
  double in_order[kLanes];
  for (size_t unit = 0; unit < static_cast<size_t>(kLanes); unit += 2 * kDoubles) {
    for (size_t place = 0; place < 2 * kDoubles; ++place) {
      in_order[unit + Weights::input_of(place)] = lanes[unit + place];
    }
  }
  for (int64_t l = 0; whole + l < cols; ++l) {
    in_order[l] += Weights::one(w[whole + l]) * static_cast<double>(values[whole + l]);
  }
  return reduce_lanes(in_order);
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace k3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // K3_KERNELS_FLOAT_ROWS_INL_H_
