#include "runtime/fit.h"

#include <cmath>
#include <cstdio>

#include "runtime/comparable_packs.h"
#include "runtime/fit_scales.h"
#include "schema/error.h"
#include "schema/json_writer.h"
#include "schema/output_file.h"
#include "schema/tuning.h"

namespace k3 {
namespace {

// The root mean square over matrices.
template <class Error>
double typical(const std::vector<FittedMatrix>& fitted, const Error& error) {
  double squares = 0;
  for (const FittedMatrix& matrix : fitted) squares += error(matrix) * error(matrix);
  return std::sqrt(squares / static_cast<double>(fitted.size()));
}

void print(const FitOptions& options, const std::vector<FittedMatrix>& fitted, int64_t tokens,
           std::ostream& out) {
  const double before = typical(fitted, [](const auto& matrix) { return matrix.error_before; });
  const double after = typical(fitted, [](const auto& matrix) { return matrix.error_after; });
  if (options.json) {
    JsonWriter json(out, 2);
    json.begin_object();
    json.member("tuning", options.output_path);
    json.member("tokens", tokens);
    json.member("error_before", before);
    json.member("error_after", after);
    json.key("matrices");
    json.begin_array();
    for (const FittedMatrix& matrix : fitted) {
      json.begin_object();
      json.member("name", matrix.name);
      json.member("error_before", matrix.error_before);
      json.member("error_after", matrix.error_after);
      json.end_object();
    }
    json.end_array();
    json.end_object();
    out << '\n';
    return;
  }
  char line[256];
  std::snprintf(line, sizeof line,
                "%zu matrices fitted on %lld tokens: outputs off by %.1f %%, before %.1f %%\n",
                fitted.size(), static_cast<long long>(tokens), 100 * after, 100 * before);
  out << line << options.output_path << ": for k3c compile --tuned\n";
}

}  // namespace

void fit(const FitOptions& options, std::ostream& out, std::ostream& progress) {
  check_writable(options.output_path);
  LoadedModel student(options.load);
  LoadOptions load = options.load;
  load.pack_path = options.teacher_path;
  LoadedModel teacher(load);
  check_comparable(student.pack(), teacher.pack());
  check_same_basis(student.pack(), teacher.pack());
  const TokenWindows windows =
      read_windows(options.text_paths, CalibrationHalf::kFit, student.tokenizer(), options.windows);
  std::vector<FittedMatrix> fitted = fit_scales(student, teacher, windows, [&](double share) {
    if (options.quiet) return;
    progress << "\rfit: " << static_cast<int>(100 * share) << " %" << std::flush;
  });
  if (!options.quiet) progress << '\n';
  if (fitted.empty()) {
    throw Error(options.load.pack_path,
                ": has no matrix with block scales, expected a pack of "
                "--trunk int8, ternary2 or ternary");
  }
  print(options, fitted, windows.tokens(), out);
  std::vector<TunedTensor> tensors;
  for (FittedMatrix& matrix : fitted) {
    tensors.push_back({matrix.name, {matrix.rows, matrix.blocks}, std::move(matrix.scales)});
  }
  write_tuning(options.output_path, student.pack().payload_xxh3(), tensors);
}

}  // namespace k3
