// Everything happens on one stream, in order, so that operations need not wait for each other; the
// host waits when it wants to read something. A token then costs a few hundred launches, which take
// longer than the work of many of them. So once a pass of one token has run and would run again the
// same way, its launches are captured into a CUDA graph, and from then on a token is one launch:
// token and position are read from the device's memory, experts are found there by a table.
//
// A captured graph holds addresses. Whatever allocates or frees memory ends its validity; the pass
// after that runs launch by launch, which also brings every scratch buffer to its size, and the one
// after that is captured anew.
#include "runtime/cuda_backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "kernels/operations_cuda.h"
#include "runtime/cuda_check.h"
#include "runtime/cuda_experts.h"
#include "runtime/cuda_graph.h"
#include "runtime/cuda_memory.h"
#include "schema/error.h"
#include "schema/pack_index.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

constexpr int64_t kUploadBytes = int64_t{1} << 20;
constexpr int64_t kMostAttentionScratch = int64_t{1} << 28;
constexpr unsigned long long kNoFault = std::numeric_limits<unsigned long long>::max();

void launched(cudaError_t error) {
  check_cuda(error, "to start a kernel");
}

// Activations in the form that products with one group of formats read, kept until they or their
// source are overwritten: several matrices read the same vectors.
struct Prepared {
  const float* x = nullptr;  // null: nothing is kept
  int64_t tokens = 0;
  int64_t cols = 0;
  DeviceBytes tiles;
  DeviceBytes steps;
  DeviceBytes scaled;
  int64_t stride_bytes = 0;

  cuda::PreparedVectors view() const {
    return {.values = x,
            .scaled = reinterpret_cast<const double*>(scaled.data()),
            .tiles = tiles.data(),
            .stride_bytes = stride_bytes,
            .steps = reinterpret_cast<const ActivationStep*>(steps.data())};
  }
};

// What makes two passes of one token the same launches.
struct RepeatablePass {
  RepeatablePass() = default;
  RepeatablePass(const Pass& pass, int64_t changes)
      : state(pass.repeatable_state),
        logits(pass.repeatable_logits),
        position_room(pass.position_room),
        memory_changes(changes) {}
  friend bool operator==(const RepeatablePass&, const RepeatablePass&) = default;

  const float* state = nullptr;
  const float* logits = nullptr;
  int64_t position_room = 0;
  int64_t memory_changes = -1;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(CudaDevice device, const CudaOptions& options)
      : device_(std::move(device)),
        options_(options),
        uploads_(kUploadBytes),
        first_position_(int64_t{sizeof(int64_t)}),
        fault_(int64_t{sizeof kNoFault}),
        fault_on_host_(int64_t{sizeof kNoFault}) {}
  ~CudaBackend() override { (void)cudaStreamSynchronize(stream_.get()); }

  std::string_view name() const override { return options_.audits ? "cuda fp64" : "cuda"; }

  // Memory.
  bool works_on_host() const override { return false; }
  void* allocate(int64_t bytes) override {
    ++memory_changes_;
    return allocate_device_memory(bytes);
  }
  void release(void* memory) override {
    (void)cudaFree(memory);
    ++memory_changes_;
  }
  void copy(const void* src, int64_t bytes, void* dst) override {
    check_cuda(
        cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_.get()),
        "to copy");
    wrote(dst, bytes);
  }
  void upload(const void* host, int64_t bytes, void* dst) override {
    uploads_.copy(host, bytes, dst, stream_.get());
    wrote(dst, bytes);
  }
  void download(const void* src, int64_t bytes, void* host) override {
    check_cuda(cudaMemcpyAsync(host, src, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                               stream_.get()),
               "to copy to the host");
    finish();
  }
  void finish() override { check_cuda(cudaStreamSynchronize(stream_.get()), "in a kernel"); }

  std::optional<double> read_bandwidth() override;

  std::optional<NotFinite> run_pass(const Pass& pass,
                                    const std::function<void()>& operations) override;
  std::optional<NotFinite> find_not_finite(const float* values, int64_t count,
                                           int64_t place) override;

  int64_t take_experts(const PackReader& pack, const ModelConfig& config, int64_t host_bytes,
                       bool check_hashes, bool with_cold) override;
  bool holds_experts() const override { return all_experts_ != nullptr; }
  void run_bank(const PackBank& bank, const RoutedExpertsShape& shape, const int32_t* slots,
                const float* weights, int64_t k, const float* z, int64_t tokens, float* u) override;
  void append_to_cache(const float* entries, int64_t tokens, int64_t width, int64_t first_position,
                       float* cache) override;

  // Operations.
  void embed(const MatrixView& table, std::span<const int32_t> ids, float* y) override;
  void matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) override;
  void add(const float* a, const float* b, int64_t n, float* y) override;
  void glu(const GluRule& rule, const float* gate, const float* up, int64_t n, float* y) override;
  void sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) override;
  void rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width, double epsilon,
                float* y) override;
  void hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y) override;
  void attention_residual_mix(std::span<const float* const> sources, const float* norm,
                              const float* proj, int64_t tokens, int64_t hidden, double epsilon,
                              float* y) override;
  void short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                  int64_t taps, float* window, float* y) override;
  void kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
           float* o) override;
  void kda_output_gate(const float* o, const float* norm_weight, const float* gate_logits,
                       int64_t tokens, int64_t heads, int64_t head_dim, double epsilon,
                       float* y) override;
  void mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                     const float* cache, int64_t first_position, int64_t tokens, float* o) override;
  void route(const RouterRule& rule, const float* logits, const float* bias,
             const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
             float* weights, float* scores) override;
  void routed_experts(const RoutedExpertsShape& shape,
                      std::span<const ExpertWeights* const> experts, const float* weights,
                      int64_t k, const float* z, int64_t tokens, float* u) override;

 private:
  // What an operation needs in between, by the order of its requests within it.
  struct Rooms {
    std::array<DeviceBytes, 8> parts;
  };

  template <class T>
  T* room(DeviceBytes& bytes, int64_t count) {
    if (bytes.make_room(count * int64_t{sizeof(T)})) ++memory_changes_;
    return reinterpret_cast<T*>(bytes.data());
  }
  void wrote(const void* begin, int64_t bytes);
  void wrote_floats(const float* begin, int64_t count) {
    wrote(begin, count * int64_t{sizeof(float)});
  }
  void forget_prepared();
  cuda::PreparedVectors prepare(Format format, const float* x, int64_t tokens, int64_t cols);
  double* wide(Format format, const float* x, int64_t tokens, int64_t cols);
  void start_pass(const Pass& pass);
  void run_experts(const RoutedExpertsShape& shape, const ExpertWeights* table,
                   const int32_t* slots, const float* weights, int64_t k, const float* z,
                   int64_t tokens, float* u);
  std::optional<NotFinite> read_fault();

  CudaDevice device_;
  CudaOptions options_;
  CudaStream stream_;
  PinnedPassage uploads_;
  std::array<Prepared, 4> prepared_;  // int8, mxfp4, ternary and ternary2, floats
  Rooms rooms_;                       // of any one operation
  std::unique_ptr<AllCudaExperts> all_experts_;
  std::unique_ptr<CudaExpertSlots> expert_slots_;
  DeviceBytes expert_table_;
  DeviceBytes expert_numbers_;

  // The running pass.
  bool in_pass_ = false;
  Pass pass_;
  DeviceBytes ids_;
  DeviceBytes first_position_;
  DeviceBytes fault_;
  PinnedBytes fault_on_host_;

  CudaGraph graph_;
  int64_t memory_changes_ = 0;  // so far
  RepeatablePass captured_;     // in graph_
  RepeatablePass ready_;        // the last one that could have been
};

// The best of five reads of a buffer that no second-level cache holds, if weights leave so much.
std::optional<double> CudaBackend::read_bandwidth() {
  constexpr int kRounds = 5;
  // Of all that is free: for so short a time nothing else needs it.
  const int64_t bytes = std::min(int64_t{1} << 30, free_device_bytes(device_) / 2 / 256 * 256);
  const DeviceBytes buffer(bytes);
  ++memory_changes_;
  auto* sink = reinterpret_cast<unsigned*>(fault_.data());
  double best_seconds = 0;
  for (int round = 0; round <= kRounds; ++round) {
    finish();
    const Stopwatch watch;
    launched(cuda::read_bytes(buffer.data(), bytes, sink, stream_.get()));
    finish();
    const double seconds = watch.seconds();
    if (round == 1 || (round > 1 && seconds < best_seconds)) best_seconds = seconds;
  }
  return static_cast<double>(bytes) / best_seconds;
}

bool overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const auto* first = static_cast<const std::byte*>(a);
  const auto* second = static_cast<const std::byte*>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

void CudaBackend::wrote(const void* begin, int64_t bytes) {
  for (Prepared& kept : prepared_) {
    if (kept.x != nullptr &&
        overlap(begin, bytes, kept.x, kept.tokens * kept.cols * int64_t{sizeof(float)})) {
      kept.x = nullptr;
    }
  }
}

void CudaBackend::forget_prepared() {
  for (Prepared& kept : prepared_) kept.x = nullptr;
}

cuda::PreparedVectors CudaBackend::prepare(Format format, const float* x, int64_t tokens,
                                           int64_t cols) {
  const size_t kind = format == Format::kInt8    ? 0
                      : format == Format::kMxfp4 ? 1
                      : reads_codes(format)      ? 2
                                                 : 3;
  Prepared& kept = prepared_[kind];
  if (kept.x == x && kept.tokens >= tokens && kept.cols == cols) return kept.view();
  kept.x = x;
  kept.tokens = tokens;
  kept.cols = cols;
  if (!reads_codes(format)) {
    auto* scaled = room<double>(kept.scaled, tokens * cols);
    launched(cuda::scale_activations(x, tokens * cols, scaled, stream_.get()));
    return kept.view();
  }
  kept.stride_bytes = ActivationTiles{format, cols}.vector_bytes();
  auto* tiles = room<std::byte>(kept.tiles, tokens * kept.stride_bytes);
  auto* steps = room<ActivationStep>(kept.steps, tokens);
  launched(cuda::quantize(format, x, tokens, cols, tiles, kept.stride_bytes, steps, stream_.get()));
  return kept.view();
}

double* CudaBackend::wide(Format format, const float* x, int64_t tokens, int64_t cols) {
  auto* values = room<double>(rooms_.parts[7], tokens * cuda::audit::wide_cols(format, cols));
  launched(cuda::audit::widen_activations(x, tokens, cols, format, values, stream_.get()));
  return values;
}

void CudaBackend::start_pass(const Pass& pass) {
  pass_ = pass;
  forget_prepared();
  auto* ids = room<int32_t>(ids_, std::ssize(pass.ids));
  uploads_.copy(pass.ids.data(), std::ssize(pass.ids) * int64_t{sizeof(int32_t)}, ids,
                stream_.get());
  uploads_.copy(&pass.first_position, int64_t{sizeof(int64_t)}, first_position_.data(),
                stream_.get());
  check_cuda(cudaMemsetAsync(fault_.data(), 0xff, sizeof kNoFault, stream_.get()),
             "to clear memory");
}

std::optional<NotFinite> CudaBackend::run_pass(const Pass& pass,
                                               const std::function<void()>& operations) {
  K3_CHECK(!in_pass_);
  start_pass(pass);
  in_pass_ = true;
  // Also when an operation throws.
  struct End {
    bool& in_pass;
    ~End() { in_pass = false; }
  } const end{in_pass_};

  // Experts that the host has to bring cannot be part of a graph.
  const bool may_repeat = pass.repeatable_state != nullptr && all_experts_ != nullptr;
  const auto pass_now = [&] { return RepeatablePass{pass, memory_changes_}; };
  const bool is_captured = may_repeat && captured_ == pass_now();
  if (is_captured || (may_repeat && ready_ == pass_now())) {
    if (!is_captured) {
      captured_ = {};
      graph_.capture(stream_.get(), operations);
      captured_ = pass_now();
    }
    graph_.launch(stream_.get());
  } else {
    operations();
    if (may_repeat) ready_ = pass_now();
  }
  forget_prepared();
  return read_fault();
}

std::optional<NotFinite> CudaBackend::read_fault() {
  check_cuda(cudaMemcpyAsync(fault_on_host_.data(), fault_.data(), sizeof kNoFault,
                             cudaMemcpyDeviceToHost, stream_.get()),
             "to copy to the host");
  finish();
  unsigned long long word = 0;
  std::memcpy(&word, fault_on_host_.data(), sizeof word);
  if (word == kNoFault) return std::nullopt;
  constexpr float kValues[] = {std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity()};
  return NotFinite{.place = static_cast<int64_t>(word >> 40),
                   .index = static_cast<int64_t>((word >> 2) & ((1ull << 38) - 1)),
                   .value = kValues[word & 3]};
}

std::optional<NotFinite> CudaBackend::find_not_finite(const float* values, int64_t count,
                                                      int64_t place) {
  auto* fault = reinterpret_cast<unsigned long long*>(fault_.data());
  if (!in_pass_) {
    check_cuda(cudaMemsetAsync(fault_.data(), 0xff, sizeof kNoFault, stream_.get()),
               "to clear memory");
  }
  launched(cuda::find_not_finite(values, count, place, fault, stream_.get()));
  return in_pass_ ? std::nullopt : read_fault();
}

int64_t CudaBackend::take_experts(const PackReader& pack, const ModelConfig& config,
                                  int64_t host_bytes, bool check_hashes, bool with_cold) {
  const int64_t usable = usable_device_bytes(free_device_bytes(device_));
  const int64_t budget = options_.expert_bytes.value_or(usable);
  if (budget > usable) {
    throw Error("--gpu-experts-gb is ", static_cast<double>(budget) / 1e9, ", the GPU has ",
                static_cast<double>(usable) / 1e9, " left beside the trunk");
  }
  int64_t largest = 0;
  for (const PackBank& bank : pack.index().content.banks) {
    largest = std::max(largest, resident_bands(config, bank).extent_bytes());
  }
  constexpr int64_t kSlotPadding = 4096;  // as much as a slot of anybody's may add
  const int64_t least = largest * config.experts_per_token;
  if (AllCudaExperts::needed_bytes(pack, config, with_cold) <= budget) {
    all_experts_ =
        std::make_unique<AllCudaExperts>(pack, config, with_cold, check_hashes, stream_.get());
    ++memory_changes_;
    return std::min(host_bytes, least + config.experts_per_token * kSlotPadding);  // never asked
  }
  const int64_t slot_bytes = largest + kSlotPadding;
  int64_t slots = budget / slot_bytes;
  // Where the memory is the host's, a slot is a second copy of what the host's cache holds.
  const bool is_shared = device_.is_integrated;
  if (is_shared && !options_.expert_bytes) slots = std::min(slots, 2 * config.experts_per_token);
  if (slots < config.experts_per_token) {
    throw Error("the GPU's memory for experts is ", budget, " bytes, one layer's ",
                config.experts_per_token, " experts need ", config.experts_per_token * slot_bytes);
  }
  expert_slots_ = std::make_unique<CudaExpertSlots>(slots, largest);
  ++memory_changes_;
  return is_shared ? std::max<int64_t>(0, host_bytes - slots * slot_bytes) : host_bytes;
}

// Visits of all tokens, with everything on the device.
void CudaBackend::run_experts(const RoutedExpertsShape& shape, const ExpertWeights* table,
                              const int32_t* slots, const float* weights, int64_t k, const float* z,
                              int64_t tokens, float* u) {
  const ExpertBands& place = shape.place;
  const int64_t visits = tokens * k;
  auto& parts = rooms_.parts;
  if (options_.audits) {
    auto* hidden = room<double>(parts[0], visits * place.inner);
    launched(cuda::audit::routed_experts(shape, table, slots, weights, k,
                                         wide(place.format, z, tokens, place.latent), tokens,
                                         hidden, u, stream_.get()));
  } else {
    const int64_t bands = visits * place.bands();
    const cuda::ExpertScratch scratch{
        .gate = room<float>(parts[0], visits * place.inner),
        .up = room<float>(parts[1], visits * place.inner),
        .hidden_tiles = room<std::byte>(parts[2], bands * cuda::hidden_tile_bytes(place)),
        .hidden_steps = room<ActivationStep>(parts[3], bands),
        .sums = room<unsigned long long>(parts[4], tokens * place.latent),
        .out_of_range = room<unsigned>(parts[5], tokens * place.latent)};
    launched(cuda::routed_experts(shape, table, slots, weights, k,
                                  prepare(place.format, z, tokens, place.latent), tokens, scratch,
                                  u, stream_.get()));
  }
  wrote_floats(u, tokens * place.latent);
}

void CudaBackend::run_bank(const PackBank& bank, const RoutedExpertsShape& shape,
                           const int32_t* slots, const float* weights, int64_t k, const float* z,
                           int64_t tokens, float* u) {
  K3_CHECK(all_experts_ != nullptr);
  run_experts(shape, all_experts_->table(bank), slots, weights, k, z, tokens, u);
}

// In groups of tokens whose experts the slots can hold at once.
void CudaBackend::routed_experts(const RoutedExpertsShape& shape,
                                 std::span<const ExpertWeights* const> experts,
                                 const float* weights, int64_t k, const float* z, int64_t tokens,
                                 float* u) {
  const int64_t extent_bytes = shape.place.extent_bytes();
  if (expert_slots_ == nullptr || expert_slots_->slot_bytes() < extent_bytes) {
    // Nobody said how much memory experts may take, or how large those of other banks are.
    finish();
    expert_slots_.reset();
    expert_slots_ = std::make_unique<CudaExpertSlots>(2 * k, extent_bytes);
    ++memory_changes_;
  }
  std::vector<ExpertWeights> table;
  std::vector<int32_t> numbers;
  for (int64_t begin = 0; begin < tokens;) {
    int64_t end = begin;
    std::set<const ExpertWeights*> distinct;
    while (end < tokens) {
      const auto first = experts.begin() + end * k;
      distinct.insert(first, first + k);
      distinct.erase(nullptr);
      if (end > begin && std::ssize(distinct) > expert_slots_->slots()) break;
      ++end;
    }
    expert_slots_->bring(
        experts.subspan(static_cast<size_t>(begin * k), static_cast<size_t>((end - begin) * k)),
        extent_bytes, stream_.get(), table, numbers);
    auto* table_there = room<ExpertWeights>(expert_table_, std::ssize(table));
    auto* numbers_there = room<int32_t>(expert_numbers_, std::ssize(numbers));
    uploads_.copy(table.data(), std::ssize(table) * int64_t{sizeof(ExpertWeights)}, table_there,
                  stream_.get());
    uploads_.copy(numbers.data(), std::ssize(numbers) * int64_t{sizeof(int32_t)}, numbers_there,
                  stream_.get());
    run_experts(shape, table_there, numbers_there, weights + begin * k, k,
                z + begin * shape.place.latent, end - begin, u + begin * shape.place.latent);
    begin = end;
  }
}

// The position is read on the device.
void CudaBackend::append_to_cache(const float* entries, int64_t tokens, int64_t width,
                                  int64_t first_position, float* cache) {
  K3_CHECK(in_pass_ && first_position == pass_.first_position);
  launched(cuda::append_to_cache(entries, tokens, width,
                                 reinterpret_cast<const int64_t*>(first_position_.data()), cache,
                                 stream_.get()));
}

void CudaBackend::embed(const MatrixView& table, std::span<const int32_t> ids, float* y) {
  K3_CHECK(in_pass_ && ids.data() == pass_.ids.data() && ids.size() == pass_.ids.size());
  launched(cuda::embed(table, reinterpret_cast<const int32_t*>(ids_.data()), std::ssize(ids), y,
                       stream_.get()));
  wrote_floats(y, std::ssize(ids) * table.cols);
}

void CudaBackend::matmul(const MatrixView& weights, const float* x, int64_t tokens, float* y) {
  if (options_.audits && reads_codes(weights.format)) {
    launched(cuda::audit::matmul(weights, wide(weights.format, x, tokens, weights.cols), tokens, y,
                                 stream_.get()));
  } else {
    launched(cuda::matmul(weights, prepare(weights.format, x, tokens, weights.cols), tokens, y,
                          stream_.get()));
  }
  wrote_floats(y, tokens * weights.rows);
}

void CudaBackend::add(const float* a, const float* b, int64_t n, float* y) {
  launched(cuda::add(a, b, n, y, stream_.get()));
  wrote_floats(y, n);
}

void CudaBackend::glu(const GluRule& rule, const float* gate, const float* up, int64_t n,
                      float* y) {
  launched(cuda::glu(rule, gate, up, n, y, stream_.get()));
  wrote_floats(y, n);
}

void CudaBackend::sigmoid_gate(const float* x, const float* gate_logits, int64_t n, float* y) {
  launched(cuda::sigmoid_gate(x, gate_logits, n, y, stream_.get()));
  wrote_floats(y, n);
}

void CudaBackend::rms_norm(const float* x, const float* weight, int64_t tokens, int64_t width,
                           double epsilon, float* y) {
  launched(cuda::rms_norm(x, width, weight, tokens, width, epsilon, y, width, stream_.get()));
  wrote_floats(y, tokens * width);
}

void CudaBackend::hadamard(const float* x, int64_t tokens, int64_t width, int64_t block, float* y) {
  launched(cuda::hadamard(x, tokens, width, block, y, stream_.get()));
  wrote_floats(y, tokens * width);
}

void CudaBackend::attention_residual_mix(std::span<const float* const> sources, const float* norm,
                                         const float* proj, int64_t tokens, int64_t hidden,
                                         double epsilon, float* y) {
  K3_CHECK(std::ssize(sources) <= cuda::kMostSources);
  auto* weights = room<double>(rooms_.parts[0], tokens * std::ssize(sources));
  launched(cuda::attention_residual_mix(sources.data(), std::ssize(sources), norm, proj, tokens,
                                        hidden, epsilon, weights, y, stream_.get()));
  wrote_floats(y, tokens * hidden);
}

void CudaBackend::short_conv(const float* x, const float* weight, int64_t tokens, int64_t channels,
                             int64_t taps, float* window, float* y) {
  launched(cuda::short_conv(x, weight, tokens, channels, taps, window, y, stream_.get()));
  wrote_floats(y, tokens * channels);
}

void CudaBackend::kda(const KdaShape& shape, const KdaInputs& in, int64_t tokens, float* state,
                      float* o) {
  launched(cuda::kda(shape, in, tokens, state, o, stream_.get()));
  wrote_floats(o, tokens * shape.heads * shape.head_dim);
}

void CudaBackend::kda_output_gate(const float* o, const float* norm_weight,
                                  const float* gate_logits, int64_t tokens, int64_t heads,
                                  int64_t head_dim, double epsilon, float* y) {
  launched(cuda::kda_output_gate(o, norm_weight, gate_logits, tokens, heads, head_dim, epsilon, y,
                                 stream_.get()));
  wrote_floats(y, tokens * heads * head_dim);
}

// In groups of tokens, as far as their scratch goes. One token gets scratch for all positions that
// its cache has room for, so that a captured pass serves them all.
void CudaBackend::mla_attention(const MlaShape& shape, const float* q, const MatrixView& kv_b,
                                const float* cache, int64_t first_position, int64_t tokens,
                                float* o) {
  K3_CHECK(in_pass_ && first_position == pass_.first_position);
  const int64_t seen = first_position + tokens;
  const int64_t positions = tokens == 1 ? std::max(seen, pass_.position_room) : seen;
  const int64_t token_bytes = cuda::mla_scratch_bytes(shape, positions);
  const int64_t group = std::clamp<int64_t>(kMostAttentionScratch / token_bytes, 1, tokens);
  auto* scratch = room<std::byte>(rooms_.parts[0], group * token_bytes);
  for (int64_t begin = 0; begin < tokens; begin += group) {
    launched(cuda::mla_attention(shape, q + begin * shape.heads * shape.query_dim(), kv_b, cache,
                                 reinterpret_cast<const int64_t*>(first_position_.data()), begin,
                                 positions, std::min(group, tokens - begin), scratch,
                                 o + begin * shape.heads * shape.v_dim, stream_.get()));
  }
  wrote_floats(o, tokens * shape.heads * shape.v_dim);
}

void CudaBackend::route(const RouterRule& rule, const float* logits, const float* bias,
                        const int32_t* source_ids, int64_t tokens, int64_t experts, int32_t* slots,
                        float* weights, float* scores) {
  auto* keys = room<uint64_t>(rooms_.parts[0], tokens * experts);
  float* kept = scores != nullptr ? scores : room<float>(rooms_.parts[1], tokens * experts);
  launched(cuda::route(rule, logits, bias, source_ids, tokens, experts, keys, kept, slots, weights,
                       stream_.get()));
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<CudaBackend>(open_cuda_device(), options);
}

}  // namespace k3
