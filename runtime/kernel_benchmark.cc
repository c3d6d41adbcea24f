// Weights are made of random bytes, which every format decodes to something finite; the speed of no
// kernel depends on their values. A call on weights from memory touches other bytes than the calls
// before it, until 8 x the last-level cache has passed, so nothing of it is cached when it comes
// again.
#include "runtime/kernel_benchmark.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

#include "kernels/multiply_add_peak.h"
#include "kernels/thread_team.h"
#include "runtime/memory_bandwidth.h"
#include "schema/aligned_bytes.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

// K3's sizes.
constexpr int64_t kHidden = 7168;
constexpr int64_t kLatent = 3584;
constexpr int64_t kInner = 3072;
constexpr int64_t kHeads = 96;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kExperts = 896;
constexpr int64_t kChosen = 16;

// What one core's second-level cache holds beside activations.
constexpr int64_t kCacheBytes = int64_t{256} << 10;

// The best of many rounds, each long enough for the clock and no longer: what else runs on the
// machine then spoils few of them.
double best_seconds(const std::function<void()>& call) {
  constexpr double kRoundSeconds = 0.002;
  constexpr double kAllSeconds = 0.2;
  constexpr int kRounds = 20;
  double best = 1e300;
  double total = 0;
  int64_t calls = 1;
  for (int round = 0; round < kRounds && (total < kAllSeconds || round < 5);) {
    const Stopwatch watch;
    for (int64_t i = 0; i < calls; ++i) call();
    const double seconds = watch.seconds();
    total += seconds;
    best = std::min(best, seconds / static_cast<double>(calls));
    if (round == 0 && seconds < kRoundSeconds) {
      calls *= 2;
    } else {
      ++round;
    }
  }
  return best;
}

// Random bytes; where they are floats, with exponents near 1.
AlignedBytes random_weights(int64_t bytes, Format format) {
  AlignedBytes made(align_up(bytes, 8));
  tbb::parallel_for(int64_t{0}, divide_up(bytes, 4096), [&](int64_t page) {
    uint64_t state = static_cast<uint64_t>(page + 1) * 0x9e3779b97f4a7c15U;
    for (int64_t i = page * 4096; i + 8 <= std::min((page + 1) * 4096, made.size_bytes()); i += 8) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      uint64_t word = state;
      if (format == Format::kBf16) word = (word & 0x807f807f807f807fU) | 0x3f803f803f803f80U;
      if (format == Format::kF32) word = (word & 0x807fffff807fffffU) | 0x3f8000003f800000U;
      std::memcpy(made.data() + i, &word, 8);
    }
  });
  return made;
}

std::vector<float> random_values(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = 88172645463325252U;
  for (float& value : values) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    value = static_cast<float>(static_cast<int64_t>(state >> 40)) * 0x1p-23F - 1.0F;
  }
  return values;
}

int64_t matrix_bytes(Format format, int64_t rows, int64_t cols) {
  if (format == Format::kMxfp4) return rows * (cols / 2 + cols / kMxfp4GroupInputs);
  if (lies_in_blocks160(format)) return Blocks160{format, rows, cols}.extent_bytes();
  return rows * packed_row_bytes(format, cols);
}

// A matrix in random bytes; `bytes` is what they are.
MatrixView view_random(Format format, int64_t rows, int64_t cols, std::byte* bytes) {
  if (format == Format::kMxfp4) {
    MatrixView view{.format = format, .rows = rows, .cols = cols, .codes = bytes};
    view.row_stride_bytes = cols / 2;
    view.scales_per_row = cols / kMxfp4GroupInputs;
    auto* scales = reinterpret_cast<uint8_t*>(bytes + rows * view.row_stride_bytes);
    for (int64_t i = 0; i < rows * view.scales_per_row; ++i) {
      scales[i] = static_cast<uint8_t>(110 + scales[i] % 16);
    }
    view.scales = scales;
    view.least_exponent = 110;
    return view;
  }
  if (lies_in_blocks160(format)) {
    const Blocks160 place{format, rows, cols};
    for (int64_t r = 0; r < rows; ++r) {
      const float one = 1.0F;
      std::memcpy(bytes + place.row_scale_offset(r), &one, sizeof one);
    }
  }
  return view_matrix(format, rows, cols, bytes);
}

class Bench {
 public:
  Bench(Backend& backend, const KernelBenchmarkOptions& options)
      : backend_(backend), options_(options) {
    constexpr int64_t kCount = 100'000'000;
    int64_t done = 0;
    int64_t sum = 0;
    const double seconds = best_seconds([&] { done = cpu::run_multiply_adds(kCount, sum); });
    result_.multiply_adds_per_second = static_cast<double>(done) / seconds;
    threads_ = {1};
    threads_.insert(static_cast<int>(team_threads()));
  }

  KernelBenchmark run() {
    for (const Format format : {Format::kBf16, Format::kF32, Format::kInt8, Format::kMxfp4,
                                Format::kTernary, Format::kTernary2}) {
      matmul(format);
    }
    routed_experts();
    kda();
    mla_attention();
    attention_residual_mix();
    elementwise();
    return std::move(result_);
  }

 private:
  bool wanted(const std::string& operation, Format format) const {
    return (operation + " " + std::string(format_name(format))).find(options_.only) !=
           std::string::npos;
  }
  bool wanted(const std::string& operation) const {
    return operation.find(options_.only) != std::string::npos;
  }

  // Measures call(turn) with `rate`'s threads, the turn going round.
  void measure(KernelRate rate, int64_t turns, const std::function<void(int64_t)>& call) {
    tbb::task_arena arena(rate.threads);
    int64_t turn = 0;
    const auto measure_part = [&] {
      return arena.execute([&] {
        return best_seconds([&] {
          call(turn);
          turn = turn + 1 < turns ? turn + 1 : 0;
        });
      });
    };
    // Memory may change its pace for a moment; the kernel is held against the fastest.
    rate.read_bytes_per_second = memory_.measure();
    rate.seconds = 1e300;
    for (int part = 0; part < 2; ++part) {
      rate.seconds = std::min(rate.seconds, measure_part());
      rate.read_bytes_per_second = std::max(rate.read_bytes_per_second, memory_.measure());
    }
    result_.rates.push_back(std::move(rate));
  }

  // How many copies of something fill memory beyond the caches.
  static int64_t copies_beyond_cache(int64_t bytes) {
    return std::max<int64_t>(2, divide_up(8 * last_level_cache_bytes(), bytes));
  }

  void matmul(Format format) {
    if (!wanted("matmul", format)) return;
    constexpr int64_t kRows = 3072;
    const int64_t cols = options_.cols;
    constexpr int64_t kMaxBatch = 64;
    const int64_t bytes = align_up(matrix_bytes(format, kRows, cols), 64);
    const int64_t copies = copies_beyond_cache(bytes);
    AlignedBytes memory = random_weights(copies * bytes, format);
    const std::vector<float> x = random_values(kMaxBatch * cols);
    std::vector<float> y(static_cast<size_t>(kMaxBatch * kRows));
    for (const bool from_memory : {false, true}) {
      for (const int threads : threads_) {
        const int64_t row_bytes = matrix_bytes(format, 64, cols) / 64;
        const int64_t rows =
            from_memory ? kRows : std::max<int64_t>(1, threads * (kCacheBytes / row_bytes));
        std::vector<MatrixView> views;
        for (int64_t i = 0; i < (from_memory ? copies : 1); ++i) {
          views.push_back(view_random(format, rows, cols, memory.data() + i * bytes));
        }
        for (const int64_t batch : {1, 4, 16, 64}) {
          if (from_memory && (batch == 4 || batch == 64)) continue;
          KernelRate rate;
          rate.operation = "matmul";
          rate.format = std::string(format_name(format));
          rate.rows = rows;
          rate.cols = cols;
          rate.batch = batch;
          rate.threads = threads;
          rate.from_memory = from_memory;
          rate.bytes = static_cast<double>(matrix_bytes(format, rows, cols));
          rate.weights = static_cast<double>(rows * cols);
          measure(rate, static_cast<int64_t>(views.size()), [&](int64_t turn) {
            backend_.matmul(views[static_cast<size_t>(turn)], x.data(), batch, y.data());
          });
        }
      }
    }
  }

  void routed_experts() {
    if (!wanted("routed experts", Format::kMxfp4)) return;
    RoutedExpertsShape shape{.place = {Format::kMxfp4, kLatent, kInner},
                             .activation = Activation::kSitu,
                             .situ_beta = 4,
                             .situ_linear_beta = 25,
                             .fixed_point = 30};
    const int64_t bytes = shape.place.extent_bytes();
    const int64_t experts = std::max<int64_t>(2 * kChosen, copies_beyond_cache(bytes));
    AlignedBytes memory = random_weights(experts * bytes, Format::kMxfp4);
    std::vector<ExpertWeights> bank;
    for (int64_t e = 0; e < experts; ++e) {
      std::byte* extent = memory.data() + e * bytes;
      for (int64_t band = 0; band < shape.place.bands(); ++band) {
        for (const auto matrix : {ExpertMatrix::kW1, ExpertMatrix::kW3, ExpertMatrix::kW2}) {
          const ExpertBands::Part part = shape.place.part(band, matrix);
          for (int64_t i = 0; i < part.rows * shape.place.scales_per_row(part.cols); ++i) {
            std::byte& scale = extent[part.scales_offset + i];
            scale = static_cast<std::byte>(110 + std::to_integer<int>(scale) % 16);
          }
        }
      }
      bank.push_back({extent, {110, 110, 110}});
    }
    constexpr int64_t kMaxBatch = 16;
    const std::vector<float> z = random_values(kMaxBatch * kLatent);
    const std::vector<float> weights(static_cast<size_t>(kMaxBatch * kChosen), 0.0625F);
    std::vector<float> u(z.size());
    for (const int threads : threads_) {
      for (const int64_t batch : {int64_t{1}, kMaxBatch}) {
        KernelRate rate;
        rate.operation = "routed experts";
        rate.format = "mxfp4";
        rate.rows = kInner;
        rate.cols = kLatent;
        rate.batch = batch;
        rate.threads = threads;
        rate.from_memory = true;
        // The tokens of a batch choose alike, as a batch that shares its experts best.
        rate.bytes = static_cast<double>(kChosen * bytes);
        rate.weights = static_cast<double>(kChosen * 3 * kLatent * kInner);
        measure(rate, experts / kChosen, [&](int64_t turn) {
          std::vector<const ExpertWeights*> chosen;
          for (int64_t i = 0; i < batch * kChosen; ++i) {
            chosen.push_back(&bank[static_cast<size_t>(turn * kChosen + i % kChosen)]);
          }
          backend_.routed_experts(shape, chosen, weights.data(), kChosen, z.data(), batch,
                                  u.data());
        });
      }
    }
  }

  void kda() {
    if (!wanted("kda")) return;
    const KdaShape shape{kHeads, kHeadDim, -5.0, 1e-6};
    constexpr int64_t kWidth = kHeads * kHeadDim;
    constexpr int64_t kMaxBatch = 16;
    const int64_t state_values = kWidth * kHeadDim;
    const int64_t copies = copies_beyond_cache(state_values * 4);
    std::vector<float> states(static_cast<size_t>(copies * state_values), 0.01F);
    const std::vector<float> x = random_values(kMaxBatch * kWidth);
    const std::vector<float> beta = random_values(kMaxBatch * kHeads);
    const std::vector<float> a_log(static_cast<size_t>(kHeads), 0.5F);
    std::vector<float> o(x.size());
    const KdaInputs in{x.data(), x.data(), x.data(), x.data(), beta.data(), a_log.data(), x.data()};
    for (const int threads : threads_) {
      for (const int64_t batch : {int64_t{1}, kMaxBatch}) {
        KernelRate rate;
        rate.operation = "kda";
        rate.rows = kHeads;
        rate.cols = kHeadDim * kHeadDim;
        rate.batch = batch;
        rate.threads = threads;
        rate.from_memory = true;
        rate.bytes = static_cast<double>(state_values * 4);
        rate.weights = static_cast<double>(3 * state_values);
        measure(rate, copies, [&](int64_t turn) {
          backend_.kda(shape, in, batch, states.data() + turn * state_values, o.data());
        });
      }
    }
    for (const int threads : threads_) {
      KernelRate rate;
      rate.operation = "kda output gate";
      rate.rows = kHeads;
      rate.cols = kHeadDim;
      rate.threads = threads;
      rate.bytes = static_cast<double>(kWidth * 4 * 2);
      rate.weights = static_cast<double>(kWidth);
      measure(rate, 1, [&](int64_t) {
        backend_.kda_output_gate(x.data(), x.data(), x.data(), 1, kHeads, kHeadDim, 1e-5, o.data());
      });
    }
  }

  void mla_attention() {
    if (!wanted("mla attention")) return;
    const MlaShape shape{kHeads, 128, 64, 128, 512};
    constexpr int64_t kPositions = 4096;
    const int64_t rows = shape.heads * (shape.content_dim + shape.v_dim);
    AlignedBytes kv_b = random_weights(rows * shape.latent * 2, Format::kBf16);
    const MatrixView view = view_matrix(Format::kBf16, rows, shape.latent, kv_b.data());
    const std::vector<float> cache = random_values(kPositions * shape.cache_width());
    const std::vector<float> q = random_values(shape.heads * shape.query_dim());
    std::vector<float> o(static_cast<size_t>(shape.heads * shape.v_dim));
    for (const int threads : threads_) {
      for (const int64_t positions : {int64_t{64}, kPositions}) {
        KernelRate rate;
        rate.operation = "mla attention";
        rate.format = "bf16";
        rate.rows = shape.heads;
        rate.cols = positions;
        rate.threads = threads;
        rate.from_memory = true;
        rate.bytes =
            static_cast<double>(rows * shape.latent * 2 + positions * shape.cache_width() * 4);
        rate.weights = static_cast<double>(
            rows * shape.latent + positions * shape.heads * (shape.cache_width() + shape.latent));
        measure(rate, 1, [&](int64_t) {
          backend_.mla_attention(shape, q.data(), view, cache.data(), positions - 1, 1, o.data());
        });
      }
    }
  }

  void attention_residual_mix() {
    if (!wanted("attention residual")) return;
    constexpr int64_t kSources = 9;
    const std::vector<float> x = random_values(kSources * kHidden);
    std::vector<const float*> sources;
    for (int64_t j = 0; j < kSources; ++j) sources.push_back(x.data() + j * kHidden);
    std::vector<float> y(static_cast<size_t>(kHidden));
    for (const int threads : threads_) {
      KernelRate rate;
      rate.operation = "attention residual";
      rate.rows = kSources;
      rate.cols = kHidden;
      rate.threads = threads;
      rate.bytes = static_cast<double>(kSources * kHidden * 4);
      rate.weights = static_cast<double>(3 * kSources * kHidden);
      measure(rate, 1, [&](int64_t) {
        backend_.attention_residual_mix(sources, x.data(), x.data() + kHidden, 1, kHidden, 1e-5,
                                        y.data());
      });
    }
  }

  // Those that read a vector or two: `call` works on `width` values.
  void vectors(const char* operation, int64_t width, int64_t read,
               const std::function<void()>& call) {
    if (!wanted(operation)) return;
    for (const int threads : threads_) {
      KernelRate rate;
      rate.operation = operation;
      rate.rows = 1;
      rate.cols = width;
      rate.threads = threads;
      rate.bytes = static_cast<double>(width * read * 4);
      rate.weights = static_cast<double>(width);
      measure(rate, 1, [&](int64_t) { call(); });
    }
  }

  void elementwise() {
    constexpr int64_t kWidth = kHeads * kHeadDim;
    const std::vector<float> a = random_values(4 * kWidth);
    std::vector<float> window(static_cast<size_t>(3 * kWidth));
    std::vector<float> y(static_cast<size_t>(kWidth));
    const float* b = a.data() + kWidth;
    vectors("rms norm", kHidden, 2,
            [&] { backend_.rms_norm(a.data(), b, 1, kHidden, 1e-5, y.data()); });
    vectors("glu", kInner, 2, [&] {
      backend_.glu({Activation::kSitu, 4, 25}, a.data(), b, kInner, y.data());
    });
    vectors("sigmoid gate", kWidth, 2,
            [&] { backend_.sigmoid_gate(a.data(), b, kWidth, y.data()); });
    vectors("short conv", kWidth, 8, [&] {
      backend_.short_conv(a.data(), a.data(), 1, kWidth, 4, window.data(), y.data());
    });
    std::vector<int32_t> ids(static_cast<size_t>(kExperts));
    for (size_t e = 0; e < ids.size(); ++e) ids[e] = static_cast<int32_t>(e);
    std::vector<int32_t> slots(static_cast<size_t>(kChosen));
    std::vector<float> weights(slots.size());
    vectors("route", kExperts, 2, [&] {
      backend_.route({kChosen, true, 2.5}, a.data(), b, ids.data(), 1, kExperts, slots.data(),
                     weights.data(), nullptr);
    });
  }

  Backend& backend_;
  const KernelBenchmarkOptions& options_;
  ReadBandwidth memory_;
  KernelBenchmark result_;
  std::set<int> threads_;
};

}  // namespace

double measure_cache_rate(Backend& backend, Format format) {
  // Long enough that the ends of rows do not count, short enough that the activations do not.
  constexpr int64_t kCols = 2048;
  const int64_t rows = std::max<int64_t>(1, kCacheBytes * 64 / matrix_bytes(format, 64, kCols));
  AlignedBytes memory = random_weights(align_up(matrix_bytes(format, rows, kCols), 64), format);
  const MatrixView view = view_random(format, rows, kCols, memory.data());
  const std::vector<float> x = random_values(kCols);
  std::vector<float> y(static_cast<size_t>(rows));
  tbb::task_arena alone(1);
  const double seconds = alone.execute(
      [&] { return best_seconds([&] { backend.matmul(view, x.data(), 1, y.data()); }); });
  return static_cast<double>(team_threads() * rows * kCols) / seconds;
}

KernelBenchmark run_kernel_benchmark(Backend& backend, const KernelBenchmarkOptions& options) {
  return Bench(backend, options).run();
}

}  // namespace k3
