// The operations of the forward pass, behind the one inheritance of this program.
//
// Every backend but `reference` returns the bits of the exact numerics (kernels/README.md), so
// which one ran can be told from the clock alone. Tensors are float, row-major, [tokens, width],
// and lie where the backend works. The comment above each operation in kernels/ is its contract;
// here are only the names.
//
// A backend may work on a device. Then tensors, weights and states lie in memory that it handed
// out, an operation may still be running when its call returns, and download() waits for it. What
// such a backend does differently has defaults here that are right for one on the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/activation.h"
#include "kernels/kda.h"
#include "kernels/mla_attention.h"
#include "kernels/routed_experts.h"
#include "kernels/router.h"
#include "schema/matrix_view.h"

namespace k3 {

class ExpertCache;
class PackReader;
struct ModelConfig;
struct PackBank;

// A number that spoils all that follow it, and where it was found.
struct NotFinite {
  int64_t place = 0;  // as find_not_finite was told
  int64_t index = 0;
  float value = 0;
};

// One pass of tokens through the layers, as a backend may want to know it beforehand.
struct Pass {
  std::span<const int32_t> ids;
  int64_t first_position = 0;
  int64_t position_room = 0;  // positions that the caches have room for
  // Not null: another pass of as many tokens and the same two, addresses of the sequence's state
  // and of the logits where the backend works, makes the same calls with the same pointers unless
  // memory was handed out or released in between, and the host does nothing within it.
  const float* repeatable_state = nullptr;
  const float* repeatable_logits = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  // Memory. Where it works on the host, any memory will do for the operations.
  virtual bool works_on_host() const { return true; }
  // 64-byte aligned, uninitialised. Throws Error or std::bad_alloc.
  virtual void* allocate(int64_t bytes) {
    return ::operator new (static_cast<size_t>(bytes), std::align_val_t{64});
  }
  virtual void release(void* memory) { ::operator delete (memory, std::align_val_t{64}); }
  // Within that memory, without overlap.
  virtual void copy(const void* src, int64_t bytes, void* dst) {
    std::memcpy(dst, src, static_cast<size_t>(bytes));
  }
  // From and to the host, whose memory is free for other use afterwards.
  virtual void upload(const void* host, int64_t bytes, void* dst) { copy(host, bytes, dst); }
  virtual void download(const void* src, int64_t bytes, void* host) { copy(src, bytes, host); }
  // Returns when all operations are done.
  virtual void finish() {}

  // How fast it can read its memory, in bytes per second, measured now; empty: as the host can.
  virtual std::optional<double> read_bandwidth() { return std::nullopt; }

  // A pass. Runs `operations`, or what it kept of them from a pass before. Returns what
  // find_not_finite found and has not told yet.
  virtual std::optional<NotFinite> run_pass(const Pass& /*pass*/,
                                            const std::function<void()>& operations) {
    operations();
    return std::nullopt;
  }
  // Looks for a value that is not finite: tells now, or at the end of the pass the one of the least
  // place. Outside of a pass it tells now.
  virtual std::optional<NotFinite> find_not_finite(const float* values, int64_t count,
                                                   int64_t place);

  // Routed experts. Called once, before the first pass, with the memory that the host has for
  // experts: what it returns of that is left to the expert cache. Throws Error.
  virtual int64_t take_experts(const PackReader& /*pack*/, const ModelConfig& /*config*/,
                               int64_t host_bytes, bool /*check_hashes*/, bool /*with_cold*/) {
    return host_bytes;
  }
  // Whether it has taken all of them, and finds those that route() chose by itself, with run_bank:
  // `slots` and `weights` are where route() put them. Otherwise the caller brings them.
  virtual bool holds_experts() const { return false; }
  virtual void run_bank(const PackBank& /*bank*/, const RoutedExpertsShape& /*shape*/,
                        const int32_t* /*slots*/, const float* /*weights*/, int64_t /*k*/,
                        const float* /*z*/, int64_t /*tokens*/, float* /*u*/) {}

  // cache[first_position + t, :] = entries[t, :], `width` floats each.
  virtual void append_to_cache(const float* entries, int64_t tokens, int64_t width,
                               int64_t first_position, float* cache) {
    copy(entries, tokens * width * int64_t{sizeof(float)}, cache + first_position * width);
  }

  // The operations. `ids`, `sources` itself and `experts` with their extents lie on the host.
  virtual void embed(const MatrixView& table, std::span<const int32_t> ids, float* y) = 0;
  virtual void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) = 0;
  virtual void add(const float* a, const float* b, int64_t n, float* y) = 0;
  virtual void glu(const GluRule& rule, const float* gate, const float* up, int64_t n,
                   float* y) = 0;
  virtual void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) = 0;
  virtual void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width,
                        double epsilon, float* y) = 0;
  virtual void hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y) = 0;
  virtual void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                                      const float* proj, int64_t tokens, int64_t hidden,
                                      double epsilon, float* y) = 0;
  virtual void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                          int64_t taps, float* window, float* y) = 0;
  virtual void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
                   float* o) = 0;
  virtual void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                               int64_t tokens, int64_t heads, int64_t head_dim, double epsilon,
                               float* y) = 0;
  virtual void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                             const float* cache, int64_t first_position, int64_t tokens,
                             float* o) = 0;
  virtual void route(const RouterRule& rule, const float* logits, const float* bias,
                     const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
                     float* weights, float* scores) = 0;
  virtual void routed_experts(const RoutedExpertsShape& shape,
                              std::span<const ExpertWeights* const> experts, const float* weights,
                              int64_t k, const float* z, int64_t tokens, float* u) = 0;
};

inline std::optional<NotFinite> Backend::find_not_finite(const float* values, int64_t count,
                                                         int64_t place) {
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return NotFinite{place, i, values[i]};
  }
  return std::nullopt;
}

// The backend of that name: "cpu" (the exact numerics) or "reference" (float activations and double
// sums in index order, for comparison with goldens), or with its defaults "cuda", where this build
// has it (backend_choice.h says more). Throws Error that lists the names there are.
std::unique_ptr<Backend> make_backend(std::string_view name);

}  // namespace k3
