// What the ternary solver reaches on layers of which everything is known, beside what information
// theory allows; with --full-size, what one of K3's largest matrices costs.
//
//   ternary_bench [--json] [--rows N] [--training-steps N] [--seed N]
//   ternary_bench --full-size [--json] [--rows N]
//
// Errors are scored on the true Gram matrix; codes are chosen on one of 16 samples per input, and
// the ridge on 8 others. Exit status 1 if an error is below the bound at the stored bits, which
// only a fault can do, or above what the solver is known to reach.
#include <sys/resource.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "passes/row_block.h"
#include "passes/ternary_solver.h"
#include "passes/water_filling.h"
#include "schema/float_product.h"
#include "schema/json_writer.h"
#include "schema/layout.h"
#include "schema/stopwatch.h"
#include "tests/bench/synthetic_layer.h"

namespace k3 {
namespace {

struct BenchOptions {
  bool json = false;
  bool full_size = false;
  int64_t rows = 0;  // 0: the case's own
  int64_t training_steps = 200;
  int64_t seed = 1;
};

struct Row {
  std::string name;  // of the case
  double alpha = 0;
  std::string_view method;
  int planes = 1;
  double error_true = 0;
  double error_fit = 0;
  double bound = 0;         // at log2(levels) bits
  double bound_stored = 0;  // at the stored bits
  double stored_bits = 0;
  double seconds = 0;  // of all threads, from the weights to this method's codes
};

struct Case {
  std::string_view name;
  double alpha;
  bool outlier_channels;
  bool rotated;
  int planes;
  std::optional<double> most_error;  // of the finished codes
};

// The last column is what must be reached; where it is empty a row is there to be compared.
constexpr Case kCases[] = {
    {"basis", 0.0, false, false, 1, 0.440}, {"basis", 0.5, false, false, 1, 0.402},
    {"basis", 1.0, false, false, 1, 0.268}, {"basis", 1.5, false, false, 1, 0.129},
    {"basis", 0.0, false, false, 2, {}},    {"basis", 0.5, false, false, 2, {}},
    {"basis", 1.0, false, false, 2, 0.105}, {"basis", 1.5, false, false, 2, {}},
    {"outliers", 1.0, true, false, 1, {}},  {"outliers rotated", 1.0, true, true, 1, 0.17},
    {"outliers", 1.0, true, false, 2, {}},  {"outliers rotated", 1.0, true, true, 2, {}},
};
constexpr double kMostGap = 0.05;  // error_true / error_fit - 1 of the finished codes

SolveInput input_of(const SyntheticLayer& layer, int64_t rows, int64_t cols) {
  SolveInput input;
  input.rows = rows;
  input.cols = cols;
  input.read_rows = [&layer, cols](int64_t first_row, std::span<float> weights) {
    std::copy_n(layer.weights.begin() + first_row * cols, weights.size(), weights.begin());
  };
  input.gram = layer.fit_gram;
  return input;
}

std::vector<Row> run_case(const Case& what, const BenchOptions& bench) {
  SyntheticShape shape;
  shape.alpha = what.alpha;
  shape.outlier_channels = what.outlier_channels;
  shape.rotated = what.rotated;
  shape.seed = static_cast<uint64_t>(bench.seed);
  if (bench.rows > 0) shape.rows = bench.rows;
  const SyntheticLayer layer = make_layer(shape);
  SolverOptions options;
  options.planes = what.planes;
  options.training_steps = static_cast<int>(bench.training_steps);
  SolveInput input = input_of(layer, shape.rows, shape.cols);
  input.select_gram = layer.select_gram;
  options.ridge = choose_ridge(input, options);
  input.select_gram = layer.true_gram;
  const TernarySolution solution = solve_ternary(input, options);

  const std::vector<double> spectrum = gram_spectrum(layer.true_gram, shape.cols);
  const Format format = what.planes == 1 ? Format::kTernary : Format::kTernary2;
  const Blocks160 place{format, shape.rows, shape.cols};
  Row row;
  row.name = what.name;
  row.alpha = what.alpha;
  row.planes = what.planes;
  row.stored_bits =
      8 * static_cast<double>(place.extent_bytes()) / static_cast<double>(shape.rows * shape.cols);
  row.bound = least_error(spectrum, what.planes * std::log2(3.0));
  row.bound_stored = least_error(spectrum, row.stored_bits);
  std::vector<Row> rows;
  for (const StepError& step : solution.steps) {
    const bool plain = step.step == "rounding";
    row.method = plain ? (what.planes == 1 ? "absmean" : "largest") : step.step;
    row.error_true = step.select.value();
    row.error_fit = step.fit;
    row.seconds = plain ? step.seconds : row.seconds + step.seconds;
    if (step.step == "exact scale") row.seconds = step.seconds;
    rows.push_back(row);
  }
  return rows;
}

// What is wrong with the rows of a case; empty if nothing.
std::string fault_of(const Case& what, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.error_true < row.bound_stored) {
      return std::string(row.method) + " is below the bound of any code";
    }
  }
  const Row& last = rows.back();
  if (what.most_error && last.error_true > *what.most_error) {
    return "error is above " + std::to_string(100 * *what.most_error) + " %";
  }
  if (last.error_true > (1 + kMostGap) * last.error_fit) return "true error far above fit error";
  return {};
}

void write_json(const std::vector<Row>& rows) {
  JsonWriter json(std::cout, 1);
  json.begin_array();
  for (const Row& row : rows) {
    json.begin_object();
    json.member("case", row.name);
    json.member("alpha", row.alpha);
    json.member("method", row.method);
    json.member("planes", row.planes);
    json.member("error_true", row.error_true);
    json.member("error_fit", row.error_fit);
    json.member("bound", row.bound);
    json.member("bound_stored", row.bound_stored);
    json.member("ratio", row.error_true / row.bound);
    json.member("stored_bits", row.stored_bits);
    json.member("seconds", row.seconds);
    json.end_object();
  }
  json.end_array();
  std::cout << "\n";
}

int run_cases(const BenchOptions& bench) {
  std::vector<Row> all;
  int status = 0;
  if (!bench.json) {
    std::printf("%-17s alpha planes %-12s  true %%   fit %%  bound %%  ratio  bits  seconds\n",
                "case", "method");
  }
  for (const Case& what : kCases) {
    const std::vector<Row> rows = run_case(what, bench);
    for (const Row& row : rows) {
      all.push_back(row);
      if (bench.json) continue;
      std::printf("%-17s %5.1f %6d %-12s %7.2f %7.2f %8.2f %6.3f %5.2f %8.2f\n", row.name.c_str(),
                  row.alpha, row.planes, std::string(row.method).c_str(), 100 * row.error_true,
                  100 * row.error_fit, 100 * row.bound, row.error_true / row.bound, row.stored_bits,
                  row.seconds);
    }
    std::fflush(stdout);
    const std::string fault = fault_of(what, rows);
    if (fault.empty()) continue;
    status = 1;
    std::fprintf(stderr, "ternary_bench: %s, alpha %.1f, %d planes: %s\n", rows[0].name.c_str(),
                 what.alpha, what.planes, fault.c_str());
  }
  if (bench.json) write_json(all);
  return status;
}

// The sum of what `rate_of` measures on each thread while all of them measure, as the solver runs.
template <class Rate>
double rate_together(int threads, const Rate& rate_of) {
  std::vector<double> rates(static_cast<size_t>(threads));
  tbb::parallel_for(
      size_t{0}, rates.size(), [&](size_t i) { rates[i] = rate_of(); }, tbb::static_partitioner());
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

// Multiply-adds a second of a dense product of the solver's usual shape: a group of inputs of 256
// rows, times its rows of `gram`.
double dense_product_rate(const std::vector<float>& gram, int64_t cols) {
  constexpr int64_t kRows = 256;
  const int64_t stride = row_stride(cols);
  const std::vector<float> a(static_cast<size_t>(kRows * kBlockInputs), 0.5F);
  std::vector<float> c(static_cast<size_t>(kRows * stride));
  double best = 0;
  for (int i = 0; i < 40; ++i) {
    const Stopwatch watch;
    add_float_product(kRows, cols, kBlockInputs, {a.data(), kBlockInputs}, {gram.data(), cols},
                      c.data(), stride);
    const double seconds = watch.seconds();
    best = std::max(best, static_cast<double>(kRows * kBlockInputs * cols) / seconds);
  }
  return best;
}

double peak_gigabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e9;
}

int run_full_size(const BenchOptions& bench) {
  constexpr int64_t kRows = 12288;
  constexpr int64_t kCols = 7168;
  constexpr double kTrunkWeights = 54.4e9;
  constexpr int kForecastCores = 16;
  const int threads = tbb::this_task_arena::max_concurrency();
  const int64_t matrix_rows = bench.rows > 0 ? bench.rows : kRows;
  const std::vector<float> gram = mixed_gram(kCols, static_cast<uint64_t>(bench.seed));
  SolveInput input;
  input.rows = matrix_rows;
  input.cols = kCols;
  input.gram = gram;
  input.read_rows = [](int64_t first_row, std::span<float> weights) {
    for (size_t at = 0; at < weights.size(); at += kCols) {
      std::mt19937_64 random(static_cast<uint64_t>(first_row) + at / kCols);
      std::normal_distribution<float> normal;
      for (float& weight : weights.subspan(at, kCols)) weight = normal(random);
    }
  };
  int64_t done = 0;
  std::mutex mutex;
  input.on_rows = [&](int64_t rows) {
    const std::scoped_lock lock(mutex);
    done += rows;
    std::fprintf(stderr, "\r%ld of %ld rows", static_cast<long>(done),
                 static_cast<long>(matrix_rows));
  };
  const double peak = rate_together(threads, measure_multiply_peak);
  const double dense = rate_together(threads, [&] { return dense_product_rate(gram, kCols); });
  const TernarySolution solution = solve_ternary(input, SolverOptions());
  std::fprintf(stderr, "\n");
  const double rate = solution.multiplications / solution.seconds;
  const double weights = static_cast<double>(matrix_rows * kCols);
  const double forecast_hours =
      solution.seconds * kTrunkWeights / weights * threads / kForecastCores / 3600;
  if (bench.json) {
    JsonWriter json(std::cout, 1);
    json.begin_object();
    json.member("rows", matrix_rows);
    json.member("cols", kCols);
    json.member("threads", threads);
    json.member("target", float_product_target());
    json.member("seconds", solution.seconds);
    json.member("sweeps", solution.sweeps);
    json.member("gigaflops", 2e-9 * rate);
    json.member("peak_gigaflops", 2e-9 * peak);
    json.member("share_of_peak", rate / peak);
    json.member("dense_gigaflops", 2e-9 * dense);
    json.member("dense_share_of_peak", dense / peak);
    json.member("peak_gigabytes", peak_gigabytes());
    json.member("trunk_hours_on_16_cores", forecast_hours);
    json.key("steps");
    json.begin_array();
    for (const StepError& step : solution.steps) {
      json.begin_object();
      json.member("method", step.step);
      json.member("error_fit", step.fit);
      json.member("thread_seconds", step.seconds);
      json.end_object();
    }
    json.end_array();
    json.end_object();
    std::cout << "\n";
    return 0;
  }
  std::printf("[%ld x %ld], one plane, %d threads, %s\n", static_cast<long>(matrix_rows),
              static_cast<long>(kCols), threads, std::string(float_product_target()).c_str());
  for (const StepError& step : solution.steps) {
    std::printf("  %-12s %6.2f %% %8.1f s\n", std::string(step.step).c_str(), 100 * step.fit,
                step.seconds / threads);
  }
  std::printf("%.1f s, at most %ld sweeps a row, %.2f GB\n", solution.seconds,
              static_cast<long>(solution.sweeps), peak_gigabytes());
  std::printf("multiply peak %.0f GFLOP/s, dense products %.0f (%.0f %%)\n", 2e-9 * peak,
              2e-9 * dense, 100 * dense / peak);
  std::printf(
      "%.2f TFLOP in products, zeros left out: %.0f GFLOP/s over the whole time (%.0f %%)\n",
      2e-12 * solution.multiplications, 2e-9 * rate, 100 * rate / peak);
  std::printf("54.4 G weights at that rate on %d cores: %.1f hours\n", kForecastCores,
              forecast_hours);
  return 0;
}

bool parse(int count, char** arguments, BenchOptions& options) {
  for (int i = 1; i < count; ++i) {
    const std::string_view flag = arguments[i];
    int64_t* number = nullptr;
    if (flag == "--json") options.json = true;
    if (flag == "--full-size") options.full_size = true;
    if (flag == "--rows") number = &options.rows;
    if (flag == "--training-steps") number = &options.training_steps;
    if (flag == "--seed") number = &options.seed;
    if (flag == "--json" || flag == "--full-size") continue;
    if (number == nullptr || ++i == count) return false;
    const std::string_view text = arguments[i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    if (error != std::errc() || end != text.data() + text.size() || *number < 0) return false;
  }
  return true;
}

}  // namespace
}  // namespace k3

int main(int argc, char** argv) {
  k3::BenchOptions options;
  if (!k3::parse(argc, argv, options)) {
    std::fputs(
        "usage: ternary_bench [--json] [--full-size] [--rows N] [--training-steps N] [--seed N]\n",
        stderr);
    return 2;
  }
  return options.full_size ? k3::run_full_size(options) : k3::run_cases(options);
}
