// Every operation of the exact numerics on a GPU. The contract of each stands in its header in
// kernels/; the names and the order of arguments are those of k3::cpu.
//
// All pointers, also those inside a MatrixView, are device memory unless it says otherwise. Calls
// put work on `stream`, allocate nothing and wait for nothing, so a whole pass can be captured into
// a CUDA graph; what an operation needs in between, the caller lends it. They return the error of
// the launch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/activation_tiles.h"
#include "kernels/kda.h"
#include "kernels/matmul.h"
#include "kernels/mla_attention.h"
#include "kernels/routed_experts.h"
#include "kernels/router.h"
#include "schema/matrix_view.h"

namespace k3::cuda {

// Activations as a product reads them; what the format does not read may be null.
struct PreparedVectors {
  const float* values = nullptr;          // [vectors, cols], for bf16 and f32
  const double* scaled = nullptr;         // the same times 2^896 (scaled_double.h)
  const std::byte* tiles = nullptr;       // integer formats: ActivationTiles of each vector,
  int64_t stride_bytes = 0;               // so far apart
  const ActivationStep* steps = nullptr;  // [vectors]
};

// Fills `tiles` and `steps` of PreparedVectors for `format` from x [vectors, cols]; `tiles` is
// 16-byte aligned and stride_bytes a multiple of 16, at least ActivationTiles::vector_bytes.
cudaError_t quantize(Format format, const float* x, int64_t vectors, int64_t cols, std::byte* tiles,
                     int64_t stride_bytes, ActivationStep* steps, cudaStream_t stream);
// scaled[i] = x[i] 2^896.
cudaError_t scale_activations(const float* x, int64_t n, double* scaled, cudaStream_t stream);

cudaError_t matmul(const MatrixView& weights, const PreparedVectors& x, int64_t tokens, float* y,
                   cudaStream_t stream);

// ids [count]. The caller has checked them.
cudaError_t embed(const MatrixView& table, const int32_t* ids, int64_t count, float* y,
                  cudaStream_t stream);

cudaError_t add(const float* a, const float* b, int64_t n, float* y, cudaStream_t stream);
cudaError_t glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y,
                cudaStream_t stream);
cudaError_t sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y,
                         cudaStream_t stream);

// Rows x_stride and y_stride floats apart; y may be x.
cudaError_t rms_norm(const float* x, int64_t x_stride, const float* weight, int64_t tokens,
                     int64_t width, double epsilon, float* y, int64_t y_stride,
                     cudaStream_t stream);

// y may be x.
cudaError_t hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y,
                     cudaStream_t stream);

inline constexpr int64_t kMostSources = 64;
// `sources` is a host array of `count` <= kMostSources device pointers; weights [tokens, count] is
// lent.
cudaError_t attention_residual_mix(const float* const* sources, int64_t count, const float* norm,
                                   const float* proj, int64_t tokens, int64_t hidden,
                                   double epsilon, double* weights, float* y, cudaStream_t stream);

cudaError_t short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                       int64_t taps, float* window, float* y, cudaStream_t stream);

// head_dim <= 1024.
cudaError_t kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state, float* o,
                cudaStream_t stream);
cudaError_t kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                            int64_t tokens, int64_t heads, int64_t head_dim, double epsilon,
                            float* y, cudaStream_t stream);

// cache[*first_position + t, :] = entries[t, :], each `width` floats.
cudaError_t append_to_cache(const float* entries, int64_t tokens, int64_t width,
                            const int64_t* first_position, float* cache, cudaStream_t stream);

// What mla_attention needs in between, for each of its tokens: so many bytes, 16-byte aligned.
// `positions` is the most that a token sees.
int64_t mla_scratch_bytes(const MlaShape& shape, int64_t positions);
// Token t stands at *first_position + first_token + t: the first position of a pass is read from
// the device, so that a captured call serves every position. `positions` bounds what the last token
// sees.
cudaError_t mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                          const float* cache, const int64_t* first_position, int64_t first_token,
                          int64_t positions, int64_t tokens, std::byte* scratch, float* o,
                          cudaStream_t stream);

// keys and scores [tokens, experts] are lent; scores receives sigmoid(logits).
cudaError_t route(const RouterRule& rule, const float* logits, const float* bias,
                  const int32_t* source_ids, int64_t tokens, int64_t experts, uint64_t* keys,
                  float* scores, int32_t* slots, float* weights, cudaStream_t stream);

// What routed_experts needs in between, for tokens * k visits.
struct ExpertScratch {
  float* gate = nullptr;                   // [visits, inner], then the activations
  float* up = nullptr;                     // [visits, inner]
  std::byte* hidden_tiles = nullptr;       // [visits, bands, hidden_tile_bytes], for mxfp4
  ActivationStep* hidden_steps = nullptr;  // [visits, bands], for mxfp4
  unsigned long long* sums = nullptr;      // [tokens, latent]
  unsigned* out_of_range = nullptr;        // [tokens, latent]
};
int64_t hidden_tile_bytes(const ExpertBands& place);

// table: where the experts are, at any address that the GPU can read; slots [tokens, k] name its
// entries, -1 none. z is prepared for the experts' format.
cudaError_t routed_experts(const RoutedExpertsShape& shape, const ExpertWeights* table,
                           const int32_t* slots, const float* weights, int64_t k,
                           const PreparedVectors& z, int64_t tokens, const ExpertScratch& scratch,
                           float* u, cudaStream_t stream);

// *fault becomes the least of itself and fault_word of the first of the `count` values that is not
// finite. A place is below 2^23, a count at most 2^38.
enum class FaultKind : uint8_t { kNan = 0, kInfinity = 1, kMinusInfinity = 2 };
K3_HOST_DEVICE inline unsigned long long fault_word(int64_t place, int64_t index, FaultKind kind) {
  return static_cast<unsigned long long>(place << 40 | index << 2 | static_cast<int64_t>(kind));
}
cudaError_t find_not_finite(const float* values, int64_t count, int64_t place,
                            unsigned long long* fault, cudaStream_t stream);

// Whether the machine code in this program includes some for the device in use.
cudaError_t check_kernel_image();

// Reads bytes [0, bytes), a multiple of 16, and does next to nothing with them: what the card's
// memory can deliver. `sink` receives something that depends on all of them.
cudaError_t read_bytes(const std::byte* from, int64_t bytes, unsigned* sink, cudaStream_t stream);

// For audit: the products in double on float activations, each row in lane order, and with them
// the experts: everything that the exact numerics do in integers, another way. The same bits on
// every GPU, within matmul.h's and routed_experts.h's distance of `reference`.
namespace audit {
// Activations as the products here read them: x [vectors, cols] as doubles, with zeros up to
// wide_cols, where the padding of weights reads.
K3_HOST_DEVICE inline int64_t wide_cols(Format format, int64_t cols) {
  return lies_in_blocks160(format) ? align_up(cols, kBlockInputs) : cols;
}
cudaError_t widen_activations(const float* x, int64_t vectors, int64_t cols, Format format,
                              double* wide, cudaStream_t stream);
cudaError_t matmul(const MatrixView& weights, const double* x, int64_t tokens, float* y,
                   cudaStream_t stream);
// hidden [tokens * k, inner] is lent. An output adds its terms by ascending j, each weighted after
// the bands of the expert are added by ascending number.
cudaError_t routed_experts(const RoutedExpertsShape& shape, const ExpertWeights* table,
                           const int32_t* slots, const float* weights, int64_t k, const double* z,
                           int64_t tokens, double* hidden, float* u, cudaStream_t stream);
}  // namespace audit

}  // namespace k3::cuda
