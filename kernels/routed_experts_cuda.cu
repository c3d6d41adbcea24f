// All chosen experts of all tokens at once: a visit is one token at one expert.
//
//   1. gate and up: a warp takes two inner values, four rows in one go that share the activations
//   2. a block a band: the activation, and for mxfp4 its codes
//   3. down: a warp takes eight outputs of one visit, in two reads of four; a read is 512 bytes in
//   a
//      row, of which eight lanes hold an output's columns of one band. The sum of band b goes to
//      lane b of the eight, so that the two multiplications in double run on all lanes, not on one
//      of eight. What leaves the warp is an integer, added to the token's sum in any order.
//   4. the sums as floats
//
// Experts of bf16 or f32 (small models) take a warp a row in 1 and 3.
#include "kernels/routed_experts.h"

#include "kernels/operations_cuda.h"
#include "kernels/quantize_cuda.h"
#include "kernels/row_products_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kLanes;
constexpr int64_t kBandThreads = 256;

__device__ MatrixView view_part(const RoutedExpertsShape& shape, const ExpertWeights& expert,
                                int64_t band, ExpertMatrix matrix) {
  return view_expert_part(shape.place, band, matrix,
                          expert.least_exponent[static_cast<size_t>(matrix)], expert.extent);
}

__device__ ActivationTiles hidden_tiles(int64_t width) {
  return {.format = Format::kMxfp4, .cols = width};
}

// The warp's inner value `first_inner` and the next of one visit.
constexpr int kInnerOfWarp = 2;

__global__ void __launch_bounds__(kThreads)
    multiply_gate_and_up(RoutedExpertsShape shape, const ExpertWeights* table, const int32_t* slots,
                         int64_t k, PreparedVectors z, float* gate, float* up) {
  constexpr int kRows = 2 * kInnerOfWarp;  // of w1, then of w3
  const int64_t inner = shape.place.inner;
  const int64_t blocks_per_visit = divide_up(inner, kWarps * kInnerOfWarp);
  const int64_t visit = blockIdx.x / blocks_per_visit;
  const int64_t first_inner =
      (blockIdx.x % blocks_per_visit * kWarps + warp_index()) * kInnerOfWarp;
  const int32_t slot = slots[visit];
  if (slot < 0 || first_inner >= inner) return;
  const ExpertWeights expert = table[slot];
  const int64_t band = first_inner / kBandInner;  // inner is a multiple of 32: both are in it
  const int64_t row = first_inner % kBandInner;
  const MatrixView w1 = view_part(shape, expert, band, ExpertMatrix::kW1);
  const MatrixView w3 = view_part(shape, expert, band, ExpertMatrix::kW3);
  const ActivationTiles place{.format = Format::kMxfp4, .cols = shape.place.latent};
  const int64_t token = visit / k;
  const int lane = lane_index();
  const LaneTiles vectors[1] = {{place, z.tiles + token * z.stride_bytes, lane}};
  RowReader<Format::kMxfp4> rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rows[r] = {r < kInnerOfWarp ? w1 : w3, row + r % kInnerOfWarp};
  }

  LaneSums<Format::kMxfp4, kRows, 1> sums;
  const int chunks = static_cast<int>(place.chunks());
#pragma unroll 2
  for (int step = 0; lane + step * kLanes < chunks; ++step) {
    Chunk<Format::kMxfp4> read[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) read[r] = rows[r].read(lane + step * kLanes);
    sums.add(read, vectors, step);
  }
  int64_t own = 0;  // lane r turns row r into its output
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t sum = from_first_lane(add_lanes(sums.sum(r, 0)));
    own = lane == r ? sum : own;
  }
  if (lane >= kRows) return;
  MatrixView matrix = w1;  // of which the scale is all that counts here
  if (lane >= kInnerOfWarp) matrix.least_exponent = w3.least_exponent;
  const int i = lane % kInnerOfWarp;
  float* outputs = lane < kInnerOfWarp ? gate : up;
  outputs[visit * inner + first_inner + i] =
      exact_output(matrix, row + i, static_cast<double>(own), z.steps[token]);
}

// One row of bf16 or f32 by a warp; right in lane 0.
__device__ double float_row_sum(const MatrixView& weights, int64_t row, const float* x) {
  const std::byte* codes = weights.codes + row * weights.row_stride_bytes;
  const bool bf16 = weights.format == Format::kBf16;
  return warp_lane_sum(weights.cols, [=](int64_t c) {
    const float weight = bf16 ? decode_bf16(reinterpret_cast<const uint16_t*>(codes)[c])
                              : reinterpret_cast<const float*>(codes)[c];
    return widen(weight) * widen(x[c]);
  });
}

// A warp an inner value of one visit.
__global__ void multiply_float_gate_and_up(RoutedExpertsShape shape, const ExpertWeights* table,
                                           const int32_t* slots, int64_t k, const float* z,
                                           int64_t visits, float* gate, float* up) {
  const int64_t inner = shape.place.inner;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  if (output >= visits * inner) return;
  const int64_t visit = output / inner;
  const int32_t slot = slots[visit];
  if (slot < 0) return;
  const int64_t i = output % inner;
  const float* x = z + visit / k * shape.place.latent;
  const MatrixView w1 = view_part(shape, table[slot], i / kBandInner, ExpertMatrix::kW1);
  const MatrixView w3 = view_part(shape, table[slot], i / kBandInner, ExpertMatrix::kW3);
  const double gate_sum = float_row_sum(w1, i % kBandInner, x);
  const double up_sum = float_row_sum(w3, i % kBandInner, x);
  if (lane_index() == 0) {
    gate[output] = static_cast<float>(gate_sum);
    up[output] = static_cast<float>(up_sum);
  }
}

// gate becomes the activation; one band of one visit.
__global__ void activate_bands(RoutedExpertsShape shape, GluRule rule, const int32_t* slots,
                               float* gate, const float* up, std::byte* tiles,
                               ActivationStep* steps) {
  const int64_t bands = shape.place.bands();
  const int64_t band = blockIdx.x % bands;
  const int64_t visit = blockIdx.x / bands;
  if (slots[visit] < 0) return;
  const int64_t width = shape.place.band_inner(band);
  const int64_t at = visit * shape.place.inner + band * kBandInner;
  const int64_t i = threadIdx.x;
  if (i < width) {
    gate[at + i] =
        exact_held_activation(shape.activation, exact_glu(rule, gate[at + i], up[at + i]));
  }
  __syncthreads();
  if (tiles == nullptr) return;
  const ActivationTiles place = hidden_tiles(width);
  quantize_vector<kBandThreads>(place, place.chunks(), gate + at,
                                tiles + blockIdx.x * hidden_tiles(kBandInner).vector_bytes(),
                                steps + blockIdx.x);
}

__device__ void add_to_token(int64_t sum, uint8_t in_range, int64_t output,
                             const ExpertScratch& scratch) {
  atomicAdd(&scratch.sums[output], static_cast<unsigned long long>(sum));
  if (in_range == 0) atomicOr(&scratch.out_of_range[output], 1u);
}

constexpr int kChunksOfBand = static_cast<int>(kBandInner / kMxfp4GroupInputs);  // 8
constexpr int kReads = 2;
constexpr int kOutputsOfRead = kLanes / kChunksOfBand;  // 4
constexpr int kOutputsOfWarp = kReads * kOutputsOfRead;

// The sums of one band for the warp's outputs, in all eight lanes of each. The lane has chunk
// `part` of 8 of its rows, if the band is so wide.
__device__ void add_band_rows(const RowReader<Format::kMxfp4> (&rows)[kReads], int part,
                              int64_t width, const std::byte* tiles, int64_t (&of_band)[kReads]) {
  LaneSums<Format::kMxfp4, kReads, 1> sums;
  if (part * kMxfp4GroupInputs < width) {
    Chunk<Format::kMxfp4> read[kReads];
#pragma unroll
    for (int r = 0; r < kReads; ++r) read[r] = rows[r].read(part);
    const LaneTiles vectors[1] = {{hidden_tiles(kBandInner), tiles, part}};
    sums.add(read, vectors, 0);
  }
#pragma unroll
  for (int r = 0; r < kReads; ++r) {
    auto sum = static_cast<unsigned long long>(sums.sum(r, 0));
#pragma unroll
    for (int stride = kChunksOfBand / 2; stride > 0; stride /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, stride);
    }
    of_band[r] = static_cast<int64_t>(sum);
  }
}

__global__ void __launch_bounds__(kThreads)
    multiply_down(RoutedExpertsShape shape, const ExpertWeights* table, const int32_t* slots,
                  const float* weights, int64_t k, ExpertScratch scratch) {
  const ExpertBands& place = shape.place;
  const int64_t bands = place.bands();
  const int64_t blocks_per_visit = divide_up(place.latent, kWarps * kOutputsOfWarp);
  const int64_t visit = blockIdx.x / blocks_per_visit;
  const int64_t first_row =
      (blockIdx.x % blocks_per_visit * kWarps + warp_index()) * kOutputsOfWarp;
  const int32_t slot = slots[visit];
  if (slot < 0 || first_row >= place.latent) return;
  const ExpertWeights expert = table[slot];
  const int part = lane_index() % kChunksOfBand;
  const int64_t row = first_row + lane_index() / kChunksOfBand;  // latent is a multiple of 32

  // Full bands are alike and lie at equal distances; the last may be narrower.
  const int64_t full_bands = place.inner / kBandInner;
  const MatrixView first = view_part(shape, expert, 0, ExpertMatrix::kW2);
  const MatrixView last = view_part(shape, expert, bands - 1, ExpertMatrix::kW2);
  const int64_t band_stride = place.band_offset(1);
  const std::byte* tiles =
      scratch.hidden_tiles + visit * bands * hidden_tiles(kBandInner).vector_bytes();
  const ActivationStep* steps = scratch.hidden_steps + visit * bands;
  const auto weight = static_cast<double>(weights[visit]);
  int64_t sums[kReads] = {};
  uint8_t in_range[kReads] = {1, 1};
  for (int64_t group = 0; group < bands; group += kChunksOfBand) {
    int64_t own[kReads] = {};  // of band group + part
#pragma unroll
    for (int b = 0; b < kChunksOfBand; ++b) {
      const int64_t band = group + b;
      if (band >= bands) break;
      RowReader<Format::kMxfp4> rows[kReads];
#pragma unroll
      for (int r = 0; r < kReads; ++r) {
        const int64_t of_read = row + r * kOutputsOfRead;
        rows[r] = band < full_bands
                      ? RowReader<Format::kMxfp4>(first, of_read).moved(band * band_stride)
                      : RowReader<Format::kMxfp4>(last, of_read);
      }
      int64_t of_band[kReads];
      add_band_rows(rows, part, band < full_bands ? kBandInner : last.cols,
                    tiles + band * hidden_tiles(kBandInner).vector_bytes(), of_band);
#pragma unroll
      for (int r = 0; r < kReads; ++r) own[r] = part == b ? of_band[r] : own[r];
    }
    if (group + part < bands) {
      const double power = exact_term_power(first, steps[group + part], shape.fixed_point);
#pragma unroll
      for (int r = 0; r < kReads; ++r) {
        exact_add_term(static_cast<double>(own[r]) * weight * power, sums[r], in_range[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kReads; ++r) {
    unsigned missing = in_range[r] == 0 ? 1u : 0u;
    auto total = static_cast<unsigned long long>(sums[r]);
    for (int stride = kChunksOfBand / 2; stride > 0; stride /= 2) {
      total += __shfl_xor_sync(kAllLanes, total, stride);
      missing |= __shfl_xor_sync(kAllLanes, missing, stride);
    }
    if (part == 0) {
      add_to_token(static_cast<int64_t>(total), missing == 0 ? 1 : 0,
                   visit / k * place.latent + row + r * kOutputsOfRead, scratch);
    }
  }
}

// A warp an output of one visit.
__global__ void multiply_float_down(RoutedExpertsShape shape, const ExpertWeights* table,
                                    const int32_t* slots, const float* weights, int64_t k,
                                    int64_t visits, ExpertScratch scratch) {
  const int64_t latent = shape.place.latent;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  if (output >= visits * latent) return;
  const int64_t visit = output / latent;
  const int32_t slot = slots[visit];
  if (slot < 0) return;
  const int64_t row = output % latent;
  const auto weight = static_cast<double>(weights[visit]);
  int64_t sum = 0;
  uint8_t in_range = 1;
  for (int64_t band = 0; band < shape.place.bands(); ++band) {
    const MatrixView w2 = view_part(shape, table[slot], band, ExpertMatrix::kW2);
    const float* h = scratch.gate + visit * shape.place.inner + band * kBandInner;
    const double power = exact_term_power(w2, ActivationStep{}, shape.fixed_point);
    exact_add_term(float_row_sum(w2, row, h) * weight * power, sum, in_range);
  }
  if (lane_index() == 0) add_to_token(sum, in_range, visit / k * latent + row, scratch);
}

__global__ void finish_outputs(ExpertScratch scratch, int32_t fixed_point, int64_t n, float* u) {
  const int64_t i = thread_index();
  if (i >= n) return;
  const auto in_range = static_cast<uint8_t>(scratch.out_of_range[i] == 0 ? 1 : 0);
  u[i] = exact_expert_output(static_cast<int64_t>(scratch.sums[i]), in_range, fixed_point);
}

cudaError_t multiply_visits(const RoutedExpertsShape& shape, const ExpertWeights* table,
                            const int32_t* slots, const float* weights, int64_t k,
                            const PreparedVectors& z, int64_t visits, const ExpertScratch& scratch,
                            cudaStream_t stream) {
  const ExpertBands& place = shape.place;
  const bool codes = reads_codes(place.format);
  cudaError_t error =
      codes ? launch(multiply_gate_and_up, visits * divide_up(place.inner, kWarps * kInnerOfWarp),
                     kThreads, stream, shape, table, slots, k, z, scratch.gate, scratch.up)
            : launch(multiply_float_gate_and_up, divide_up(visits * place.inner, kWarps), kThreads,
                     stream, shape, table, slots, k, z.values, visits, scratch.gate, scratch.up);
  if (error != cudaSuccess) return error;
  error = launch(activate_bands, visits * place.bands(), kBandThreads, stream, shape,
                 glu_rule(shape), slots, scratch.gate, scratch.up,
                 codes ? scratch.hidden_tiles : nullptr, scratch.hidden_steps);
  if (error != cudaSuccess) return error;
  return codes ? launch(multiply_down, visits * divide_up(place.latent, kWarps * kOutputsOfWarp),
                        kThreads, stream, shape, table, slots, weights, k, scratch)
               : launch(multiply_float_down, divide_up(visits * place.latent, kWarps), kThreads,
                        stream, shape, table, slots, weights, k, visits, scratch);
}

}  // namespace

int64_t hidden_tile_bytes(const ExpertBands& place) {
  return reads_codes(place.format)
             ? ActivationTiles{.format = place.format, .cols = kBandInner}.vector_bytes()
             : 0;
}

cudaError_t routed_experts(const RoutedExpertsShape& shape, const ExpertWeights* table,
                           const int32_t* slots, const float* weights, int64_t k,
                           const PreparedVectors& z, int64_t tokens, const ExpertScratch& scratch,
                           float* u, cudaStream_t stream) {
  if (lies_in_blocks160(shape.place.format)) return cudaErrorInvalidValue;
  const int64_t outputs = tokens * shape.place.latent;
  cudaError_t error =
      cudaMemsetAsync(scratch.sums, 0, static_cast<size_t>(outputs) * sizeof *scratch.sums, stream);
  if (error != cudaSuccess) return error;
  error = cudaMemsetAsync(scratch.out_of_range, 0,
                          static_cast<size_t>(outputs) * sizeof *scratch.out_of_range, stream);
  if (error != cudaSuccess) return error;
  error = multiply_visits(shape, table, slots, weights, k, z, tokens * k, scratch, stream);
  if (error != cudaSuccess) return error;
  return launch(finish_outputs, divide_up(outputs, kThreads), kThreads, stream, scratch,
                shape.fixed_point, outputs, u);
}

}  // namespace k3::cuda
