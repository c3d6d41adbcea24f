#include "runtime/tune.h"

#include <algorithm>
#include <cstdio>

#include "runtime/comparable_packs.h"
#include "runtime/loaded_model.h"
#include "runtime/token_windows.h"
#include "schema/block_codes.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/json_writer.h"
#include "schema/output_file.h"
#include "schema/tuning.h"

namespace k3 {
namespace {

// How often a run that is killed has left its file.
constexpr int64_t kSaves = 10;

constexpr int64_t kMostSteps = int64_t{1} << 24;
constexpr int64_t kMostTokens = int64_t{1} << 24;

void check(const TuneOptions& options) {
  const TuneSchedule& schedule = options.schedule;
  const auto is_count = [](int64_t count, int64_t most) { return count >= 1 && count <= most; };
  const auto is_share = [](double rate) { return rate >= 0 && rate <= 1; };
  if (!is_count(schedule.steps, kMostSteps) || !is_count(schedule.step_tokens, kMostTokens)) {
    throw Error("--steps is ", schedule.steps, " and --step-tokens ", schedule.step_tokens,
                ", expected 1 to ", kMostSteps, " and 1 to ", kMostTokens);
  }
  if (!is_share(schedule.learning_rate) || schedule.learning_rate == 0 ||
      !is_share(schedule.code_rate)) {
    throw Error("--learning-rate is ", schedule.learning_rate, " and --code-rate ",
                schedule.code_rate, ", expected more than 0, and at most 1 each");
  }
  if (options.window_tokens < 2 || options.check_tokens < options.window_tokens ||
      options.window_tokens > kMostTokens) {
    throw Error("--window-tokens is ", options.window_tokens, " and --check-tokens ",
                options.check_tokens, ", expected 2 to ", kMostTokens, ", and room for one window");
  }
}

// Puts the values of a .k3tune file into the parameters that it names.
void start_from(const std::string& path, ModelGradient& student) {
  const TuningReader tuning(path);
  const PackReader& pack = student.model().pack();
  if (tuning.pack_payload_xxh3() != pack.payload_xxh3()) {
    throw Error(path, ": was tuned for the pack with payload ",
                hex_digits(tuning.pack_payload_xxh3()), ", ", pack.path(), " has ",
                hex_digits(pack.payload_xxh3()));
  }
  for (int64_t i = 0; i < tuning.tensors(); ++i) {
    auto& parameters = student.parameters();
    const auto found = std::ranges::find(parameters, tuning.target(i), &TunedParameter::name);
    const bool fits = found != parameters.end() &&
                      tuning.shape(i).elements() ==
                          std::ssize(tuning.has_codes(i) ? found->latents : found->values);
    if (!fits) {
      throw Error(path, ": tensor ", tuning.name(i), ": ", tuning.shape(i), " is nothing that ",
                  pack.path(), " has to be tuned",
                  tuning.has_codes(i) ? ", at least without --codes" : "");
    }
    if (!tuning.has_codes(i)) {
      tuning.read(i, found->values);
      continue;
    }
    std::vector<int8_t> codes(found->latents.size());
    tuning.read_codes(i, largest_code(found->format), codes);
    std::ranges::copy(codes, found->latents.begin());
  }
}

void save(const std::string& path, ModelGradient& student) {
  std::vector<TunedTensor> tensors;
  for (const TunedParameter& parameter : student.parameters()) {
    const auto count = std::ssize(parameter.values);
    const Shape shape =
        parameter.rows > 0 ? Shape{parameter.rows, count / parameter.rows} : Shape{count};
    tensors.push_back({.name = parameter.name, .shape = shape, .values = parameter.values});
    if (parameter.latents.empty()) continue;
    tensors.push_back({.name = parameter.name + std::string(kTunedCodesEnding),
                       .shape = {parameter.rows, parameter.cols},
                       .codes = rounded_latents(parameter)});
  }
  write_tuning(path, student.model().pack().payload_xxh3(), tensors);
}

void print(const TuneOptions& options, const std::vector<TuneStep>& steps, double before,
           double after, std::ostream& out) {
  if (options.json) {
    JsonWriter json(out, 2);
    json.begin_object();
    json.member("tuning", options.output_path);
    json.member("kl_before", before);
    json.member("kl_after", after);
    json.key("steps");
    json.begin_array();
    for (const TuneStep& step : steps) {
      json.begin_object();
      json.member("step", step.step);
      json.member("kl", step.kl);
      json.end_object();
    }
    json.end_array();
    json.end_object();
    out << '\n';
    return;
  }
  char line[256];
  std::snprintf(line, sizeof line, "%lld steps: KL on the select half %.4f, before %.4f\n",
                static_cast<long long>(options.schedule.steps), after, before);
  out << line << options.output_path << ": for k3c compile --tuned\n";
}

}  // namespace

void tune(const TuneOptions& options, std::ostream& out, std::ostream& progress) {
  const TuneSchedule& schedule = options.schedule;
  check(options);
  check_writable(options.output_path);
  ModelGradient student(options.pack_path, options.backend, options.window_tokens, options.verify,
                        options.train_codes);
  LayerwiseModel teacher(options.teacher_path, options.backend, options.window_tokens,
                         options.verify);
  check_comparable(student.model().pack(), teacher.pack());
  if (!options.start_path.empty()) start_from(options.start_path, student);
  if (options.train_codes) lean_codes(student, teacher);

  const Tokenizer tokenizer = load_tokenizer(student.model().pack());
  const TokenWindows fit = read_windows(
      options.text_paths, CalibrationHalf::kFit, tokenizer,
      {.window_tokens = options.window_tokens,
       .max_tokens = std::max(schedule.steps * schedule.step_tokens, options.window_tokens)});
  const TokenWindows select =
      read_windows(options.text_paths, CalibrationHalf::kSelect, tokenizer,
                   {.window_tokens = options.window_tokens, .max_tokens = options.check_tokens});

  // Kept while the student trains, so that the teacher runs on the select half once: at K3's width
  // 29 KB a token.
  TeacherLoss select_loss(teacher, select.windows);
  const double before = mean_divergence(student, select_loss);
  std::vector<TuneStep> steps;
  tune_parameters(student, teacher, fit.windows, schedule, [&](const TuneStep& step) {
    steps.push_back(step);
    if (!options.quiet) {
      char line[64];
      std::snprintf(line, sizeof line, "\rtune: step %lld of %lld, KL %.4f ",
                    static_cast<long long>(step.step), static_cast<long long>(schedule.steps),
                    step.kl);
      progress << line << std::flush;
    }
    if (step.step * kSaves / schedule.steps != (step.step - 1) * kSaves / schedule.steps) {
      save(options.output_path, student);
    }
  });
  if (!options.quiet) progress << '\n';
  print(options, steps, before, mean_divergence(student, select_loss), out);
}

}  // namespace k3
