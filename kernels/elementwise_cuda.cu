// Operations whose outputs know nothing of one another: a thread each.
#include "kernels/activation.h"
#include "kernels/embedding.h"
#include "kernels/operations_cuda.h"
#include "kernels/warp_cuda.h"

namespace k3::cuda {
namespace {

constexpr int kThreads = 128;  // small blocks: the double pipes of many processors, not of a few

__global__ void embed_rows(MatrixView table, const int32_t* ids, int64_t values, float* y) {
  const int64_t i = thread_index();
  if (i < values) y[i] = exact_embedding_value(table, ids[i / table.cols], i % table.cols);
}

__global__ void add_values(const float* a, const float* b, int64_t n, float* y) {
  const int64_t i = thread_index();
  if (i < n) y[i] = a[i] + b[i];
}

__global__ void glu_values(GluRule rule, const float* gate, const float* up, int64_t n, float* y) {
  const int64_t i = thread_index();
  if (i < n) y[i] = exact_glu(rule, gate[i], up[i]);
}

__global__ void gate_values(const float* x, const float* gate_logits, int64_t n, float* y) {
  const int64_t i = thread_index();
  if (i < n) y[i] = exact_sigmoid_gate(x[i], gate_logits[i]);
}

__global__ void append_entries(const float* entries, int64_t values, int64_t width,
                               const int64_t* first_position, float* cache) {
  const int64_t i = thread_index();
  if (i < values) cache[*first_position * width + i] = entries[i];
}

__global__ void find_bad(const float* values, int64_t count, int64_t place,
                         unsigned long long* fault) {
  const int64_t i = thread_index();
  if (i >= count) return;
  const uint32_t bits = float_bits(values[i]);
  if ((bits & 0x7f800000u) != 0x7f800000u) return;
  const FaultKind kind = (bits & 0x007fffffu) != 0 ? FaultKind::kNan
                         : (bits >> 31) == 0       ? FaultKind::kInfinity
                                                   : FaultKind::kMinusInfinity;
  atomicMin(fault, fault_word(place, i, kind));
}

template <class... Parameters, class... Arguments>
cudaError_t launch_each(void (*kernel)(Parameters...), int64_t count, cudaStream_t stream,
                        Arguments... arguments) {
  return launch(kernel, divide_up(count, kThreads), kThreads, stream, arguments...);
}

}  // namespace

cudaError_t embed(const MatrixView& table, const int32_t* ids, int64_t count, float* y,
                  cudaStream_t stream) {
  const int64_t values = count * table.cols;
  return launch_each(embed_rows, values, stream, table, ids, values, y);
}

cudaError_t add(const float* a, const float* b, int64_t n, float* y, cudaStream_t stream) {
  return launch_each(add_values, n, stream, a, b, n, y);
}

cudaError_t glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y,
                cudaStream_t stream) {
  return launch_each(glu_values, n, stream, rule, gate, up, n, y);
}

cudaError_t sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y,
                         cudaStream_t stream) {
  return launch_each(gate_values, n, stream, x, gate_logits, n, y);
}

cudaError_t append_to_cache(const float* entries, int64_t tokens, int64_t width,
                            const int64_t* first_position, float* cache, cudaStream_t stream) {
  const int64_t values = tokens * width;
  return launch_each(append_entries, values, stream, entries, values, width, first_position, cache);
}

cudaError_t find_not_finite(const float* values, int64_t count, int64_t place,
                            unsigned long long* fault, cudaStream_t stream) {
  return launch_each(find_bad, count, stream, values, count, place, fault);
}

cudaError_t check_kernel_image() {
  cudaFuncAttributes attributes = {};
  return cudaFuncGetAttributes(&attributes, add_values);
}

}  // namespace k3::cuda
