#include "runtime/bench_kernels.h"

#include <algorithm>
#include <cstdio>

#include "kernels/instruction_set.h"
#include "kernels/thread_team.h"
#include "schema/error.h"
#include "schema/json_writer.h"

namespace k3 {
namespace {

// A rate as it is printed. For "memory read", the best of the run, and "multiply-add" the fields
// that do not apply are 0 or empty.
struct Line {
  KernelRate rate;
  double gb_per_s = 0;
  double gweights_per_s = 0;  // weights times tokens
  double share_of_read = 0;
  double share_of_multiply_adds = 0;
};

std::vector<Line> lines_of(const KernelBenchmark& benchmark) {
  std::vector<Line> lines;
  KernelRate read;
  read.operation = "memory read";
  read.threads = static_cast<int>(team_threads());
  read.from_memory = true;
  for (const KernelRate& rate : benchmark.rates) {
    read.read_bytes_per_second = std::max(read.read_bytes_per_second, rate.read_bytes_per_second);
  }
  lines.push_back({read, read.read_bytes_per_second / 1e9, 0, 1, 0});
  KernelRate multiply_add;
  multiply_add.operation = "multiply-add";
  lines.push_back({multiply_add, 0, benchmark.multiply_adds_per_second / 1e9, 0, 1});
  for (const KernelRate& rate : benchmark.rates) {
    const double bytes_per_second = rate.bytes / rate.seconds;
    const double multiply_adds = rate.weights * static_cast<double>(rate.batch) / rate.seconds;
    lines.push_back({rate, bytes_per_second / 1e9, multiply_adds / 1e9,
                     bytes_per_second / rate.read_bytes_per_second,
                     multiply_adds / (benchmark.multiply_adds_per_second * rate.threads)});
  }
  return lines;
}

const char* residence(const KernelRate& rate) {
  return rate.from_memory ? "memory" : "cache";
}

void write_json(const std::vector<Line>& lines, std::ostream& out) {
  JsonWriter json(out, 2);
  json.begin_array();
  for (const Line& line : lines) {
    json.begin_object();
    json.member("operation", line.rate.operation);
    json.member("format", line.rate.format);
    json.member("rows", line.rate.rows);
    json.member("cols", line.rate.cols);
    json.member("batch", line.rate.batch);
    json.member("threads", line.rate.threads);
    json.member("resident", residence(line.rate));
    json.member("microseconds", line.rate.seconds * 1e6);
    json.member("gb_per_s", line.gb_per_s);
    json.member("gweights_per_s", line.gweights_per_s);
    json.member("read_gb_per_s", line.rate.read_bytes_per_second / 1e9);
    json.member("share_of_read", line.share_of_read);
    json.member("share_of_multiply_adds", line.share_of_multiply_adds);
    json.end_object();
  }
  json.end_array();
  out << '\n';
}

void write_table(const std::vector<Line>& lines, std::ostream& out) {
  char text[200];
  std::snprintf(text, sizeof text, "%-19s %-8s %6s %6s %5s %7s %-8s %10s %8s %11s %9s %8s %8s\n",
                "operation", "format", "rows", "cols", "batch", "threads", "resident", "us", "GB/s",
                "Gweights/s", "read GB/s", "of read", "of madd");
  out << text;
  for (const Line& line : lines) {
    const KernelRate& rate = line.rate;
    std::snprintf(
        text, sizeof text,
        "%-19s %-8s %6lld %6lld %5lld %7d %-8s %10.1f %8.2f %11.2f %9.2f %7.1f%% %7.1f%%\n",
        rate.operation.c_str(), rate.format.c_str(), static_cast<long long>(rate.rows),
        static_cast<long long>(rate.cols), static_cast<long long>(rate.batch), rate.threads,
        residence(rate), rate.seconds * 1e6, line.gb_per_s, line.gweights_per_s,
        rate.read_bytes_per_second / 1e9, 100 * line.share_of_read,
        100 * line.share_of_multiply_adds);
    out << text;
  }
}

}  // namespace

void bench_kernels(const BenchKernelsOptions& options, std::ostream& out) {
  const std::unique_ptr<Backend> backend = make_backend(options.backend);
  if (!backend->works_on_host()) {
    throw Error("bench --kernels measures kernels of the host; tests/gpu.sh measures a GPU's");
  }
  const KernelBenchmark benchmark = run_kernel_benchmark(*backend, options.benchmark);
  const std::vector<Line> lines = lines_of(benchmark);
  if (options.json) {
    write_json(lines, out);
    return;
  }
  out << "backend " << backend->name() << ", instruction set " << chosen_instruction_set() << '\n';
  write_table(lines, out);
}

}  // namespace k3
