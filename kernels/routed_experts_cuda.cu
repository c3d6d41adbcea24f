// All chosen experts of all tokens at once: a visit is one token at one expert.
//
//   1. gate and up: a warp takes two inner values, four rows in one go that share the activations
//   2. a block a band: the activation, and for mxfp4 its codes
//   3. down: a warp takes four outputs of one visit; its lanes read 512 bytes in a row, eight of
//      them each output's columns of one band. The sum of band b goes to lane b of the eight, so
//      that the two multiplications in double run on all lanes, not on one of eight. What leaves
//      the warp is an integer, added to the token's sum in any order.
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
  const std::byte* const vectors[1] = {z.tiles + token * z.stride_bytes};

  LaneSums<Format::kMxfp4, kRows, 1> sums;
  const int64_t chunks = place.chunks();
#pragma unroll 2
  for (int64_t chunk = lane_index(); chunk < chunks; chunk += kLanes) {
    Chunk<Format::kMxfp4> read[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      read[r] =
          read_chunk<Format::kMxfp4>(r < kInnerOfWarp ? w1 : w3, row + r % kInnerOfWarp, chunk);
    }
    sums.add(read, vectors, place, chunk);
  }
  int64_t own = 0;  // lane r turns row r into its output
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t sum = from_first_lane(add_lanes(sums.sum(r, 0)));
    own = lane_index() == r ? sum : own;
  }
  if (lane_index() >= kRows) return;
  const int i = lane_index() % kInnerOfWarp;
  const MatrixView& matrix = lane_index() < kInnerOfWarp ? w1 : w3;
  float* outputs = lane_index() < kInnerOfWarp ? gate : up;
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
constexpr int kOutputsOfWarp = kLanes / kChunksOfBand;                           // 4

// The warp's lane has chunk `part` of 8 of its row; returns the row's sum in all 8 lanes.
__device__ int64_t down_row_sum(const MatrixView& w2, int64_t row, int part,
                                const std::byte* tiles) {
  LaneSums<Format::kMxfp4, 1, 1> sums;
  const ActivationTiles place = hidden_tiles(w2.cols);
  if (part < place.chunks()) {
    const Chunk<Format::kMxfp4> read[1] = {read_chunk<Format::kMxfp4>(w2, row, part)};
    const std::byte* const vectors[1] = {tiles};
    sums.add(read, vectors, place, part);
  }
  auto sum = static_cast<unsigned long long>(sums.sum(0, 0));
#pragma unroll
  for (int stride = kChunksOfBand / 2; stride > 0; stride /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, stride);
  }
  return static_cast<int64_t>(sum);
}

__global__ void __launch_bounds__(kThreads)
    multiply_down(RoutedExpertsShape shape, const ExpertWeights* table, const int32_t* slots,
                  const float* weights, int64_t k, ExpertScratch scratch) {
  const int64_t latent = shape.place.latent;
  const int64_t bands = shape.place.bands();
  const int64_t blocks_per_visit = divide_up(latent, kWarps * kOutputsOfWarp);
  const int64_t visit = blockIdx.x / blocks_per_visit;
  const int64_t first_row =
      (blockIdx.x % blocks_per_visit * kWarps + warp_index()) * kOutputsOfWarp;
  const int32_t slot = slots[visit];
  if (slot < 0 || first_row >= latent) return;
  const ExpertWeights expert = table[slot];
  const int part = lane_index() % kChunksOfBand;
  const int64_t row = first_row + lane_index() / kChunksOfBand;  // latent is a multiple of 32
  const auto weight = static_cast<double>(weights[visit]);
  int64_t sum = 0;
  uint8_t in_range = 1;
  for (int64_t first = 0; first < bands; first += kChunksOfBand) {
    int64_t own = 0;  // of band first + part
#pragma unroll
    for (int b = 0; b < kChunksOfBand; ++b) {
      if (first + b >= bands) break;
      const MatrixView w2 = view_part(shape, expert, first + b, ExpertMatrix::kW2);
      const std::byte* tiles = scratch.hidden_tiles + (visit * bands + first + b) *
                                                          hidden_tiles(kBandInner).vector_bytes();
      const int64_t of_band = down_row_sum(w2, row, part, tiles);
      own = part == b ? of_band : own;
    }
    if (first + part < bands) {
      const MatrixView w2 = view_part(shape, expert, first + part, ExpertMatrix::kW2);
      const double power = exact_term_power(w2, scratch.hidden_steps[visit * bands + first + part],
                                            shape.fixed_point);
      exact_add_term(static_cast<double>(own) * weight * power, sum, in_range);
    }
  }
  unsigned missing = in_range == 0 ? 1u : 0u;
  auto total = static_cast<unsigned long long>(sum);
  for (int stride = kChunksOfBand / 2; stride > 0; stride /= 2) {
    total += __shfl_xor_sync(kAllLanes, total, stride);
    missing |= __shfl_xor_sync(kAllLanes, missing, stride);
  }
  if (part == 0) {
    add_to_token(static_cast<int64_t>(total), missing == 0 ? 1 : 0, visit / k * latent + row,
                 scratch);
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
