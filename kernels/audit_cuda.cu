// The products in double: float activations, no codes, no fixed point.
//
// What it is for: to see how far the integers of the exact numerics are from double precision on a
// whole model, and what double precision costs. So it is made as the integer kernels are, with
// whole chunks of 16 bytes and decoding in registers, and differs in the arithmetic alone. Its
// order of addition is its own but as fixed: lane l of 32 adds chunks c = l mod 32 ascending, a
// chunk's inputs in the order of its pieces, and the lanes go through the tree.
#include "kernels/operations_cuda.h"
#include "kernels/row_products_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda::audit {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kLanes;

// A byte of `word`, signed, less `offset`, as a double: an addition, which is faster than a
// conversion on any card. Its low word counts ones above 2^52 + 2^51.
__device__ double double_of_byte(uint32_t word, int i, int offset) {
  const auto value = static_cast<int32_t>(static_cast<int8_t>(word >> (8 * i)));
  return double_from_words(0x43380000u, static_cast<uint32_t>(value) ^ 0x80000000u) -
         (0x1.8p52 + 0x1p31 + offset);
}

// One lane's sum over the chunks of a row of integer weights, multipliers and group scales in it.
template <Format kFormat>
__device__ double chunk_sums(const MatrixView& weights, int64_t row, const double* x) {
  const ActivationTiles place{.format = kFormat, .cols = weights.cols};
  const int chunks = static_cast<int>(place.chunks());
  const RowReader<kFormat> reader(weights, row);
  double total = 0;
  for (int chunk = lane_index(); chunk < chunks; chunk += kLanes) {
    const Chunk<kFormat> read = reader.read(chunk);
    ChunkDecoder<kFormat> decoder(read);
    double sum = 0;
#pragma unroll
    for (int piece = 0; piece < ActivationTiles::pieces_of(kFormat); ++piece) {
      const uint4 codes = decoder.next_piece();
      const int64_t input = place.piece_input(chunk, piece);
#pragma unroll
      for (int i = 0; i < kPieceInputs; ++i) {
        const double code = double_of_byte(word_of(codes, i / 4), i % 4, kCodeOffset<kFormat>);
        sum = std::fma(code, x[input + i], sum);
      }
    }
    double scale = read.scale;
    if constexpr (kFormat == Format::kMxfp4) {
      scale = 0.5 * decode_e8m0(weights.scales[row * weights.scales_per_row + chunk]);
    }
    total = std::fma(sum, scale, total);
  }
  return total;
}

// The row's product, right in lane 0; all lanes call it.
__device__ double row_product(const MatrixView& weights, int64_t row, const double* x) {
  const std::byte* codes = weights.codes + row * weights.row_stride_bytes;
  switch (weights.format) {
    case Format::kF32:
      return warp_lane_sum(weights.cols, [=](int64_t c) {
        return static_cast<double>(reinterpret_cast<const float*>(codes)[c]) * x[c];
      });
    case Format::kBf16:
      return warp_lane_sum(weights.cols, [=](int64_t c) {
        return static_cast<double>(decode_bf16(reinterpret_cast<const uint16_t*>(codes)[c])) * x[c];
      });
    case Format::kInt8:
      return add_lanes(chunk_sums<Format::kInt8>(weights, row, x)) *
             static_cast<double>(weights.row_scales[row]);
    case Format::kTernary:
      return add_lanes(chunk_sums<Format::kTernary>(weights, row, x)) *
             static_cast<double>(weights.row_scales[row]);
    case Format::kTernary2:
      return add_lanes(chunk_sums<Format::kTernary2>(weights, row, x)) *
             static_cast<double>(weights.row_scales[row]);
    case Format::kMxfp4:
      return add_lanes(chunk_sums<Format::kMxfp4>(weights, row, x));
  }
  return 0;
}

__global__ void widen_values(const float* x, int64_t values, int64_t cols, int64_t stride,
                             double* wide) {
  const int64_t i = thread_index();
  if (i >= values) return;
  const int64_t c = i % stride;
  wide[i] = c < cols ? widen(x[i / stride * cols + c]) : 0.0;
}

__global__ void multiply(MatrixView weights, const double* x, int64_t tokens, float* y) {
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  if (output >= tokens * weights.rows) return;
  const double product =
      row_product(weights, output % weights.rows,
                  x + output / weights.rows * wide_cols(weights.format, weights.cols));
  if (lane_index() == 0) y[output] = static_cast<float>(product);
}

__device__ MatrixView view_part(const RoutedExpertsShape& shape, const ExpertWeights& expert,
                                int64_t band, ExpertMatrix matrix) {
  return view_expert_part(shape.place, band, matrix,
                          expert.least_exponent[static_cast<size_t>(matrix)], expert.extent);
}

__global__ void multiply_gate_and_up(RoutedExpertsShape shape, GluRule rule,
                                     const ExpertWeights* table, const int32_t* slots, int64_t k,
                                     const double* z, int64_t visits, double* hidden) {
  const int64_t inner = shape.place.inner;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  if (output >= visits * inner) return;
  const int64_t visit = output / inner;
  const int32_t slot = slots[visit];
  if (slot < 0) return;
  const int64_t band = output % inner / kBandInner;
  const int64_t row = output % inner % kBandInner;
  const double* x = z + visit / k * shape.place.latent;
  const auto gate = static_cast<float>(
      row_product(view_part(shape, table[slot], band, ExpertMatrix::kW1), row, x));
  const auto up = static_cast<float>(
      row_product(view_part(shape, table[slot], band, ExpertMatrix::kW3), row, x));
  if (lane_index() == 0) {
    hidden[output] =
        static_cast<double>(exact_held_activation(shape.activation, exact_glu(rule, gate, up)));
  }
}

__global__ void multiply_down(RoutedExpertsShape shape, const ExpertWeights* table,
                              const int32_t* slots, const float* weights, int64_t k,
                              const double* hidden, int64_t tokens, float* u) {
  const int64_t latent = shape.place.latent;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index();
  if (output >= tokens * latent) return;
  const int64_t first_visit = output / latent * k;
  double total = 0;
  for (int64_t visit = first_visit; visit < first_visit + k; ++visit) {
    const int32_t slot = slots[visit];
    if (slot < 0) continue;
    double of_expert = 0;
    for (int64_t band = 0; band < shape.place.bands(); ++band) {
      const MatrixView w2 = view_part(shape, table[slot], band, ExpertMatrix::kW2);
      of_expert +=
          row_product(w2, output % latent, hidden + visit * shape.place.inner + band * kBandInner);
    }
    total += of_expert * static_cast<double>(weights[visit]);
  }
  if (lane_index() == 0) u[output] = static_cast<float>(total);
}

}  // namespace

cudaError_t widen_activations(const float* x, int64_t vectors, int64_t cols, Format format,
                              double* wide, cudaStream_t stream) {
  const int64_t stride = wide_cols(format, cols);
  const int64_t values = vectors * stride;
  return launch(widen_values, divide_up(values, kThreads), kThreads, stream, x, values, cols,
                stride, wide);
}

cudaError_t matmul(const MatrixView& weights, const double* x, int64_t tokens, float* y,
                   cudaStream_t stream) {
  return launch(multiply, divide_up(tokens * weights.rows, kWarps), kThreads, stream, weights, x,
                tokens, y);
}

cudaError_t routed_experts(const RoutedExpertsShape& shape, const ExpertWeights* table,
                           const int32_t* slots, const float* weights, int64_t k, const double* z,
                           int64_t tokens, double* hidden, float* u, cudaStream_t stream) {
  const int64_t visits = tokens * k;
  const cudaError_t error =
      launch(multiply_gate_and_up, divide_up(visits * shape.place.inner, kWarps), kThreads, stream,
             shape, glu_rule(shape), table, slots, k, z, visits, hidden);
  if (error != cudaSuccess) return error;
  return launch(multiply_down, divide_up(tokens * shape.place.latent, kWarps), kThreads, stream,
                shape, table, slots, weights, k, hidden, tokens, u);
}

}  // namespace k3::cuda::audit
