// Every line is a CUDA graph of one launch for each of at least 16 matrices, four times the
// second-level cache together or more, so that none is there when its turn comes; the best of five
// runs of the graph counts. "of read" compares with a kernel that only reads, launched on the same
// matrices one by one: what a launch costs, both pay. "of peak" compares with one launch that reads
// all of them.
#include "tests/gpu/time_kernels.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <ostream>
#include <thread>
#include <vector>

#include "kernels/operations_cuda.h"
#include "schema/stopwatch.h"
#include "tests/gpu/comparison_kernels.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/prepared_vectors.h"
#include "tests/kernels/counted_values.h"

namespace k3::test {
namespace {

constexpr int kRuns = 5;
constexpr int64_t kLeastMatrices = 16;
constexpr int64_t kCachesOfMatrices = 4;

class Graph {
 public:
  explicit Graph(const std::function<void()>& work) {
    work();  // kernels are loaded when they first run, and that is no work for a capture
    check_cuda(cudaStreamBeginCapture(the_stream(), cudaStreamCaptureModeThreadLocal));
    work();
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(the_stream(), &graph));
    check_cuda(cudaGraphInstantiate(&exec_, graph, 0));
    check_cuda(cudaGraphDestroy(graph));
    check_cuda(cudaEventCreate(&start_));
    check_cuda(cudaEventCreate(&end_));
  }
  ~Graph() {
    (void)cudaEventDestroy(start_);
    (void)cudaEventDestroy(end_);
    (void)cudaGraphExecDestroy(exec_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // The shortest of kRuns, after one that warms up.
  double best_seconds() {
    float best = 0;
    for (int run = 0; run <= kRuns; ++run) {
      check_cuda(cudaEventRecord(start_, the_stream()));
      check_cuda(cudaGraphLaunch(exec_, the_stream()));
      check_cuda(cudaEventRecord(end_, the_stream()));
      check_cuda(cudaEventSynchronize(end_));
      float milliseconds = 0;
      check_cuda(cudaEventElapsedTime(&milliseconds, start_, end_));
      if (run > 0 && (run == 1 || milliseconds < best)) best = milliseconds;
    }
    return static_cast<double>(best) * 1e-3;
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;
};

// Matrices of one format, one behind the other, with random codes and sound scales.
class Matrices {
 public:
  Matrices(Format format, Shape shape, int64_t cache_bytes)
      : format_(format),
        shape_(shape),
        bytes_(align_up(counted_matrix_bytes(format, shape.rows, shape.cols), 256)),
        count_(std::max(kLeastMatrices, divide_up(kCachesOfMatrices * cache_bytes, bytes_) + 1)),
        memory_(static_cast<size_t>(count_ * bytes_)) {
    for (int64_t i = 0; i < count_; ++i) fill(i);
    check_cuda(cudaStreamSynchronize(the_stream()));
  }

  int64_t count() const { return count_; }
  int64_t matrix_bytes() const { return bytes_; }
  const std::byte* data() { return memory_.data(); }
  MatrixView view(int64_t i) {
    return view_counted_matrix(format_, shape_.rows, shape_.cols, memory_.data() + i * bytes_);
  }

 private:
  void fill_range(int64_t matrix, uint32_t mask, uint32_t bits, int64_t from, int64_t to) {
    check_cuda(fill_words(static_cast<uint32_t>(matrix), mask, bits, (to - from) / 4,
                          reinterpret_cast<uint32_t*>(memory_.data() + matrix * bytes_ + from),
                          the_stream()));
  }
  void fill(int64_t i) {
    // Floats without infinities and NaNs: one exponent bit stays 0.
    const uint32_t mask = format_ == Format::kBf16  ? 0xbfffbfffu
                          : format_ == Format::kF32 ? 0xbfffffffu
                                                    : 0xffffffffu;
    fill_range(i, mask, 0, 0, bytes_);
    if (format_ == Format::kMxfp4) {
      const int64_t codes = shape_.rows * shape_.cols / 2;
      fill_range(i, 0x0f0f0f0fu, 0x70707070u, codes, codes + shape_.rows * shape_.cols / 32);
    }
    if (lies_in_blocks160(format_)) {
      const Blocks160 place{format_, shape_.rows, shape_.cols};
      fill_range(i, 0x007fffffu, 0x3f800000u, place.row_scales_offset(), place.extent_bytes());
    }
  }

  Format format_;
  Shape shape_;
  int64_t bytes_;
  int64_t count_;
  DeviceArray<std::byte> memory_;
};

const char* name_of(Format format) {
  constexpr const char* kNames[] = {"f32", "bf16", "int8", "mxfp4", "ternary", "ternary2"};
  return kNames[static_cast<size_t>(format)];
}

class Table {
 public:
  explicit Table(std::ostream& out) : out_(out) {
    print("%-34s %-14s %5s %9s %9s %10s %8s %8s\n", "what", "shape", "batch", "us", "GB/s",
          "Gweights/s", "of read", "of peak");
  }
  template <class... Values>
  void print(const char* format, Values... values) {
    char line[200];
    std::snprintf(line, sizeof line, format, values...);
    out_ << line << std::flush;
  }
  // `read` and `peak` are bytes per second to compare with, 0 for none.
  void row(const std::string& what, Shape shape, int64_t batch, double seconds, double bytes,
           double weights, double read, double peak) {
    const std::string dims = std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
    const double rate = bytes / seconds;
    print("%-34s %-14s %5lld %9.1f %9.1f %10.1f %7.1f%% %7.1f%%\n", what.c_str(), dims.c_str(),
          static_cast<long long>(batch), seconds * 1e6, rate * 1e-9, weights / seconds * 1e-9,
          read > 0 ? 100 * rate / read : 0, peak > 0 ? 100 * rate / peak : 0);
  }

 private:
  std::ostream& out_;
};

// x [vectors, cols] of ordinary values on the device.
DeviceArray<float> activations(int64_t vectors, int64_t cols) {
  std::vector<float> x;
  for (int64_t i = 0; i < vectors * cols; ++i) x.push_back(counted_normal(1, i));
  return DeviceArray<float>(x);
}

struct Measured {
  double seconds = 0;  // a matrix
  double read = 0;     // bytes per second of the read-only kernel, a launch a matrix
  double peak = 0;     // in one launch
};

double seconds_each(Matrices& matrices, const std::function<void(int64_t)>& work) {
  Graph graph([&] {
    for (int64_t i = 0; i < matrices.count(); ++i) work(i);
  });
  return graph.best_seconds() / static_cast<double>(matrices.count());
}

// The lines of one format: a vector, a batch, and what they are compared with.
void time_format(Table& table, Format format, Shape shape, int64_t cache_bytes) {
  constexpr int64_t kBatch = 16;
  Matrices matrices(format, shape, cache_bytes);
  DeviceArray<unsigned> sink(1);
  DeviceArray<float> x = activations(kBatch, shape.cols);
  DeviceArray<float> y(static_cast<size_t>(kBatch * shape.rows));
  const auto bytes = static_cast<double>(matrices.matrix_bytes());
  const double weights = static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
  const std::string name = name_of(format);

  const double read_seconds = seconds_each(matrices, [&](int64_t i) {
    check_cuda(cuda::read_bytes(matrices.data() + i * matrices.matrix_bytes(),
                                matrices.matrix_bytes(), sink.data(), the_stream()));
  });
  Graph all([&] {
    check_cuda(cuda::read_bytes(matrices.data(), matrices.count() * matrices.matrix_bytes(),
                                sink.data(), the_stream()));
  });
  const double read = bytes / read_seconds;
  const double peak = bytes * static_cast<double>(matrices.count()) / all.best_seconds();
  table.row("read only, " + name, shape, 0, read_seconds, bytes, 0, read, peak);
  double integers_seconds = 0;
  for (const int64_t batch : {int64_t{1}, kBatch}) {
    PreparedOnDevice prepared(format, x.data(), batch, shape.cols);
    const double seconds = seconds_each(matrices, [&](int64_t i) {
      check_cuda(cuda::matmul(matrices.view(i), prepared.view(), batch, y.data(), the_stream()));
    });
    table.row("product, " + name, shape, batch, seconds, bytes,
              weights * static_cast<double>(batch), read, peak);
    if (batch == 1) integers_seconds = seconds;
  }
  if (!reads_codes(format)) return;

  DeviceArray<double> wide(static_cast<size_t>(cuda::audit::wide_cols(format, shape.cols)));
  check_cuda(
      cuda::audit::widen_activations(x.data(), 1, shape.cols, format, wide.data(), the_stream()));
  const double audit_seconds = seconds_each(matrices, [&](int64_t i) {
    check_cuda(cuda::audit::matmul(matrices.view(i), wide.data(), 1, y.data(), the_stream()));
  });
  table.row("  in double (--numerics fp64)", shape, 1, audit_seconds, bytes, weights, read, peak);
  table.print("  double / integer: %.2f times the time\n", audit_seconds / integers_seconds);

  std::vector<int16_t> codes(static_cast<size_t>(shape.cols));
  const std::vector<float> values = x.values();
  ActivationVector vector{.values = nullptr, .codes = nullptr, .step = {}};
  vector.step = exact_quantize(values.data(), shape.cols, codes.data());
  DeviceArray<int16_t> codes_there(codes);
  vector.codes = codes_there.data();
  Graph one([&] {  // one matrix is enough for a kernel this slow
    check_cuda(multiply_thread_per_row(matrices.view(0), vector, y.data(), the_stream()));
  });
  const double row_seconds = one.best_seconds();
  table.row("  a thread a row", shape, 1, row_seconds, bytes, weights, read, peak);
  table.print("  a thread a row / a warp a row: %.1f times the time\n",
              row_seconds / integers_seconds);
}

// All experts of a token at once, a bank's worth of banks in turns.
void time_experts(Table& table, const ExpertBands& place, int64_t cache_bytes) {
  constexpr int64_t kExperts = 16;
  const int64_t extent = align_up(place.extent_bytes(), 256);
  const int64_t banks =
      std::max<int64_t>(2, divide_up(kCachesOfMatrices * cache_bytes, kExperts * extent) + 1);
  DeviceArray<std::byte> memory(static_cast<size_t>(banks * kExperts * extent));
  // Scales among the codes make no difference to the time, as long as shifts stay in range.
  check_cuda(fill_words(1, 0x7f7f7f7fu, 0, banks * kExperts * extent / 4,
                        reinterpret_cast<uint32_t*>(memory.data()), the_stream()));
  std::vector<ExpertWeights> experts;
  std::vector<int32_t> slots;
  for (int64_t i = 0; i < banks * kExperts; ++i) {
    experts.push_back({memory.data() + i * extent, {110, 110, 110}});
    if (i < kExperts) slots.push_back(static_cast<int32_t>(i));
  }
  const RoutedExpertsShape shape{.place = place,
                                 .activation = Activation::kSitu,
                                 .situ_beta = 4,
                                 .situ_linear_beta = 25,
                                 .fixed_point = 24};
  DeviceArray<ExpertWeights> there(experts);
  DeviceArray<int32_t> slots_there(slots);
  DeviceArray<float> weights(std::vector<float>(kExperts, 1.0F / kExperts));
  DeviceArray<float> z = activations(1, place.latent);
  PreparedOnDevice prepared(place.format, z.data(), 1, place.latent);
  const auto inner = static_cast<size_t>(kExperts * place.inner);
  const auto bands = static_cast<size_t>(kExperts * place.bands());
  DeviceArray<float> gate(inner), up(inner), u(static_cast<size_t>(place.latent));
  DeviceArray<std::byte> tiles(bands * static_cast<size_t>(cuda::hidden_tile_bytes(place)));
  DeviceArray<ActivationStep> steps(bands);
  DeviceArray<unsigned long long> sums(static_cast<size_t>(place.latent));
  DeviceArray<unsigned> out_of_range(static_cast<size_t>(place.latent));
  DeviceArray<unsigned> sink(1);
  Graph run([&] {
    for (int64_t bank = 0; bank < banks; ++bank) {
      check_cuda(cuda::routed_experts(
          shape, there.data() + bank * kExperts, slots_there.data(), weights.data(), kExperts,
          prepared.view(), 1,
          {gate.data(), up.data(), tiles.data(), steps.data(), sums.data(), out_of_range.data()},
          u.data(), the_stream()));
    }
  });
  Graph reading([&] {
    for (int64_t bank = 0; bank < banks; ++bank) {
      check_cuda(cuda::read_bytes(memory.data() + bank * kExperts * extent, kExperts * extent,
                                  sink.data(), the_stream()));
    }
  });
  const double bytes = static_cast<double>(kExperts * extent);
  const double read = bytes * static_cast<double>(banks) / reading.best_seconds();
  table.row("16 routed experts, mxfp4", {place.inner, place.latent}, 1,
            run.best_seconds() / static_cast<double>(banks), bytes,
            3.0 * static_cast<double>(kExperts * place.inner * place.latent), read, read);
}

// The same product on the processors of this machine: plain loops over the contract, rows split
// over threads. Not the program's CPU kernels, which need Highway.
void time_host(Table& table, Format format, Shape shape) {
  std::vector<std::byte> bytes(
      static_cast<size_t>(counted_matrix_bytes(format, shape.rows, shape.cols)));
  fill_counted_matrix(1, format, shape.rows, shape.cols, bytes.data());
  const MatrixView view = view_counted_matrix(format, shape.rows, shape.cols, bytes.data());
  std::vector<float> x;
  for (int64_t i = 0; i < shape.cols; ++i) x.push_back(counted_normal(1, i));
  std::vector<int16_t> codes(x.size());
  ActivationVector vector{.values = x.data(), .codes = codes.data(), .step = {}};
  vector.step = exact_quantize(x.data(), shape.cols, codes.data());
  std::vector<float> y(static_cast<size_t>(shape.rows));
  const int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  const Stopwatch watch;
  std::vector<std::thread> running;
  for (int64_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (int64_t r = t; r < shape.rows; r += threads) {
        y[static_cast<size_t>(r)] =
            exact_output(view, r, exact_row_sum(view, r, vector), vector.step);
      }
    });
  }
  for (std::thread& each : running) each.join();
  const double seconds = watch.seconds();
  table.row("host, plain loops, " + std::to_string(threads) + " threads, " + name_of(format), shape,
            1, seconds, static_cast<double>(bytes.size()),
            static_cast<double>(shape.rows) * static_cast<double>(shape.cols), 0, 0);
}

}  // namespace

void time_kernels(const TimingOptions& options, std::ostream& out) {
  cudaDeviceProp device = {};
  int number = 0;
  check_cuda(cudaGetDevice(&number));
  check_cuda(cudaGetDeviceProperties(&device, number));
  const int64_t cache_bytes = options.small ? 1 : device.l2CacheSize;
  const Shape trunk = options.small ? Shape{8, 160} : Shape{12288, 7168};
  const Shape expert = options.small ? Shape{32, 32} : Shape{3072, 3584};
  Table table(out);
  for (const Format format : {Format::kTernary, Format::kTernary2, Format::kInt8, Format::kMxfp4,
                              Format::kBf16, Format::kF32}) {
    time_format(table, format, trunk, cache_bytes);
  }
  time_format(table, Format::kMxfp4, expert, cache_bytes);
  time_experts(table, {Format::kMxfp4, expert.cols, expert.rows}, cache_bytes);
  time_host(table, Format::kTernary, expert);
  time_host(table, Format::kMxfp4, expert);
}

}  // namespace k3::test
