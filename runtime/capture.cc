#include "runtime/capture.h"

#include <cstdio>
#include <filesystem>

#include "runtime/capture_run.h"
#include "schema/calibration_writer.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/json_writer.h"
#include "schema/kimi_k3_release.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

void check_outputs(const CaptureOptions& options) {
  if (options.calibration_path.empty() && options.teacher_path.empty() &&
      options.trace_path.empty()) {
    throw Error("capture needs --calibration, --teacher or --trace, a file to write");
  }
  if (!options.propagated_path.empty() && options.calibration_path.empty()) {
    throw Error("--propagated needs --calibration: a teacher is the pack's own");
  }
  if (options.pack_path.empty() || options.text_paths.empty()) {
    throw Error("capture needs a pack and --text, or --merge");
  }
  if (options.window_tokens < 0) {
    throw Error("--window-tokens is ", options.window_tokens,
                ", expected 1 or more, or 0 for none");
  }
  if (options.chunk_tokens < 1 || options.chunk_tokens > 4096) {
    throw Error("--chunk-tokens is ", options.chunk_tokens, ", expected 1 to 4096");
  }
}

size_t matrices_of(const CalibrationIndex& index) {
  size_t matrices = 0;
  for (const CalibrationInput& input : index.inputs) matrices += input.matrices.size();
  return matrices;
}

void write_index(JsonWriter& json, const std::string& path, const CalibrationIndex& index) {
  json.key("calibration");
  json.begin_object();
  json.member("bytes", static_cast<int64_t>(std::filesystem::file_size(path)));
  json.member("inputs", index.inputs.size());
  json.member("matrices", matrices_of(index));
  json.member("text_xxh3", hex_digits(index.text_xxh3()));
  json.member("split_xxh3", hex_digits(index.split_xxh3()));
  for (const CalibrationHalf half : kCalibrationHalves) {
    json.key(kCalibrationHalfNames[static_cast<size_t>(half)]);
    json.begin_object();
    json.member("documents", index.of(half).xxh3.size());
    json.member("tokens", index.of(half).tokens);
    json.end_object();
  }
  json.end_object();
}

void print_index(std::ostream& out, const std::string& path, const CalibrationIndex& index) {
  out << path << ": " << index.inputs.size() << " inputs of " << matrices_of(index) << " matrices, "
      << index.of(CalibrationHalf::kFit).tokens << " tokens of "
      << index.of(CalibrationHalf::kFit).xxh3.size() << " documents to fit, "
      << index.of(CalibrationHalf::kSelect).tokens << " of "
      << index.of(CalibrationHalf::kSelect).xxh3.size() << " to select, "
      << std::filesystem::file_size(path) << " bytes\n";
}

void write_cost(JsonWriter& json, const CaptureCost& cost) {
  json.key("cost");
  json.begin_object();
  json.member("read_seconds", cost.read_seconds);
  json.member("weight_bytes", cost.weight_bytes);
  json.member("forward_seconds", cost.forward_seconds);
  json.member("forward_products", cost.forward_products);
  json.member("spill_seconds", cost.spill_seconds);
  json.member("spill_bytes", cost.spill_bytes);
  json.member("gram_seconds", cost.gram_seconds);
  json.member("gram_products", cost.gram_products);
  json.member("store_seconds", cost.store_seconds);
  json.member("stored_sums", cost.stored_sums);
  json.member("stored_bytes", cost.stored_bytes);
  json.end_object();
}

// `amount` per second, in thousands of millions.
double giga_rate(int64_t amount, double seconds) {
  return seconds > 0 ? static_cast<double>(amount) / seconds / 1e9 : 0;
}

void print_cost(std::ostream& out, const CaptureCost& cost, double seconds) {
  char line[512];
  std::snprintf(
      line, sizeof line,
      "%.1f s: weights %.1f (%.2f GB/s), forward %.1f (%.2f GMAC/s), streams %.1f (%.2f GB/s), "
      "Gram "
      "%.1f (%.1f GMAC/s), storing %.1f (%.2f bytes a sum)\n",
      seconds, cost.read_seconds, giga_rate(cost.weight_bytes, cost.read_seconds),
      cost.forward_seconds, giga_rate(cost.forward_products, cost.forward_seconds),
      cost.spill_seconds, giga_rate(cost.spill_bytes, cost.spill_seconds), cost.gram_seconds,
      giga_rate(cost.gram_products, cost.gram_seconds), cost.store_seconds,
      cost.stored_sums == 0
          ? 0.0
          : static_cast<double>(cost.stored_bytes) / static_cast<double>(cost.stored_sums));
  out << line;
}

void merge(const CaptureOptions& options, std::ostream& out) {
  if (options.merge_paths.size() < 2 || options.calibration_path.empty() ||
      !options.pack_path.empty() || !options.text_paths.empty() || !options.teacher_path.empty() ||
      !options.trace_path.empty()) {
    throw Error("--merge takes two or more .k3cal files and --calibration, and nothing else");
  }
  for (const std::string& path : options.merge_paths) {
    std::error_code ignored;
    if (std::filesystem::equivalent(path, options.calibration_path, ignored)) {
      throw Error(options.calibration_path,
                  ": is one of the files to merge, expected another path");
    }
  }
  std::string sum = options.merge_paths.front();
  for (size_t i = 1; i < options.merge_paths.size(); ++i) {
    merge_calibrations(CalibrationReader(sum), CalibrationReader(options.merge_paths[i]),
                       options.calibration_path);
    sum = options.calibration_path;
  }
  const CalibrationReader merged(sum);
  if (!options.json) {
    print_index(out, sum, merged.index());
    return;
  }
  JsonWriter json(out, 2);
  json.begin_object();
  write_index(json, sum, merged.index());
  json.end_object();
  out << '\n';
}

}  // namespace

void capture(const CaptureOptions& options, std::ostream& out, std::ostream& progress) {
  if (!options.merge_paths.empty()) {
    merge(options, out);
    return;
  }
  check_outputs(options);
  const Stopwatch watch;
  CaptureRun run(options, progress);
  if (run.resumed_layers() > 0 && !options.quiet) {
    progress << "goes on behind layer " << run.resumed_layers() << "\n";
  }
  run.run();
  const double seconds = watch.seconds();
  const CaptureForecast forecast = forecast_capture(run.cost(), kimi_k3_release());
  if (options.json) {
    JsonWriter json(out, 2);
    json.begin_object();
    json.member("tokens", run.text().tokens());
    json.member("seconds", seconds);
    json.member("resumed_layers", run.resumed_layers());
    if (!options.calibration_path.empty()) {
      write_index(json, options.calibration_path, run.index());
    }
    write_cost(json, run.cost());
    json.key("forecast_k3");
    write_forecast(forecast, json);
    json.end_object();
    out << '\n';
    return;
  }
  if (!options.calibration_path.empty()) print_index(out, options.calibration_path, run.index());
  if (!options.teacher_path.empty()) {
    out << options.teacher_path << ": " << run.text().tokens() << " predictions, the likeliest "
        << options.top_k << " tokens of each\n";
  }
  if (!options.trace_path.empty()) {
    out << options.trace_path << ": the routing of " << run.text().tokens() << " tokens\n";
  }
  print_cost(out, run.cost(), seconds);
  print_forecast(forecast, out);
}

}  // namespace k3
