#include "runtime/eval.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <sstream>

#include "runtime/comparable_packs.h"
#include "runtime/text_input.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/json_writer.h"
#include "schema/output_file.h"
#include "schema/text_file.h"

namespace k3 {
namespace {

EvalText tokenized(const TextFile& file, const Tokenizer& tokenizer) {
  EvalText text{file.name, file.xxh3, tokenize_documents(file, tokenizer), {}};
  for (const std::string& document : file.documents) {
    text.document_xxh3.push_back(xxh3(std::as_bytes(std::span(document))));
  }
  return text;
}

// The mean over all positions of all texts.
double mean_kl(const std::vector<EvalResult>& results) {
  double sum = 0;
  int64_t positions = 0;
  for (const EvalResult& result : results) {
    sum += result.comparison->kl.mean * static_cast<double>(result.positions);
    positions += result.positions;
  }
  return sum / static_cast<double>(positions);
}

void write_estimate(JsonWriter& json, std::string_view name, const Estimate& estimate) {
  json.key(name);
  json.begin_object();
  json.member("mean", estimate.mean);
  json.member("low", estimate.low);
  json.member("high", estimate.high);
  json.end_object();
}

void write_result(JsonWriter& json, const EvalResult& result) {
  json.begin_object();
  json.member("text", result.name);
  json.member("text_xxh3", hex_digits(result.text_xxh3));
  json.member("documents", result.documents);
  json.member("windows", result.windows);
  json.member("positions", result.positions);
  write_estimate(json, "nll_per_token", result.nll);
  json.member("perplexity", std::exp(result.nll.mean));
  if (result.comparison) {
    const Comparison& c = *result.comparison;
    write_estimate(json, "kl", c.kl);
    json.member("kl_median", c.kl_median);
    json.member("kl_p99", c.kl_p99);
    json.member("kl_max", c.kl_max);
    write_estimate(json, "top1_agreement", c.top1_agreement);
    write_estimate(json, "against_nll_per_token", c.other_nll);
    json.member("flipped_experts", c.flipped_experts);
    json.member("flipped_token_layers", c.flipped_token_layers);
    json.member("missing_mass", c.missing_mass);
    json.member("all_present", c.all_present);
  }
  json.end_object();
}

// A prune plan measured on the other pack.
struct Beside {
  std::string score;
  int64_t experts_kept = 0;
  std::vector<EvalResult> results;
};

int64_t choosable_experts(const Weights& weights) {
  int64_t experts = 0;
  for (const LayerWeights& layer : weights.layers) experts += std::ssize(layer.moe.choosable());
  return experts;
}

void write_results(JsonWriter& json, const std::vector<EvalResult>& results) {
  json.key("texts");
  json.begin_array();
  for (const EvalResult& result : results) write_result(json, result);
  json.end_array();
}

// The receipt: no path, host or time in it, so that it says the same wherever it was measured.
std::string receipt_text(const EvalCommandOptions& options, const LoadedModel& model,
                         const PackReader* other, const std::vector<EvalResult>& results,
                         const std::vector<Beside>& beside) {
  std::ostringstream text;
  JsonWriter json(text, 2);
  json.begin_object();
  json.member("kind", "k3eval");
  json.member("version", 1);
  json.member("pack_payload_xxh3", hex_digits(model.pack().payload_xxh3()));
  json.member("backend", options.load.backend);
  json.member("experts_kept", choosable_experts(model.weights()));
  if (other != nullptr) {
    json.member("against_payload_xxh3", hex_digits(other->payload_xxh3()));
    json.member("against_backend", options.against_backend);
    json.member("mean_kl", mean_kl(results));
  }
  json.member("window_tokens", options.eval.window_tokens);
  json.member("resamples", options.eval.resamples);
  write_results(json, results);
  if (!beside.empty()) {
    json.key("beside");
    json.begin_array();
    for (const Beside& each : beside) {
      json.begin_object();
      json.member("score", each.score);
      json.member("experts_kept", each.experts_kept);
      write_results(json, each.results);
      json.end_object();
    }
    json.end_array();
  }
  json.end_object();
  text << '\n';
  return std::move(text).str();
}

void print_table(const std::vector<EvalResult>& results, std::ostream& out) {
  char line[256];
  std::snprintf(line, sizeof line, "%-20s %9s %10s %23s %10s\n", "text", "documents", "positions",
                "nll per token [95 %]", "perplexity");
  out << line;
  for (const EvalResult& r : results) {
    std::snprintf(line, sizeof line, "%-20s %9lld %10lld   %.4f [%.4f, %.4f] %10.3f\n",
                  r.name.c_str(), static_cast<long long>(r.documents),
                  static_cast<long long>(r.positions), r.nll.mean, r.nll.low, r.nll.high,
                  std::exp(r.nll.mean));
    out << line;
  }
  if (!results.front().comparison) return;
  std::snprintf(line, sizeof line, "\n%-20s %30s %9s %9s %8s %9s %9s %9s %9s %9s\n",
                "against the other pack", "KL in nats [95 %]", "median", "p99", "top-1", "nll +",
                "flipped", "at all", "missing", "present");
  out << line;
  for (const EvalResult& r : results) {
    const Comparison& c = *r.comparison;
    std::snprintf(
        line, sizeof line,
        "%-20s %10.3e [%.2e, %.2e] %9.2e %9.2e %7.2f%% %+9.5f %8.3f%% %8.3f%% %8.3f%% %8.3f%%\n",
        r.name.c_str(), c.kl.mean, c.kl.low, c.kl.high, c.kl_median, c.kl_p99,
        100 * c.top1_agreement.mean, r.nll.mean - c.other_nll.mean, 100 * c.flipped_experts,
        100 * c.flipped_token_layers, 100 * c.missing_mass, 100 * c.all_present);
    out << line;
  }
  out << "flipped: share of chosen experts the other pack did not choose; at all: share of (token, "
         "layer) with one\nmissing: share of the other pack's routing weights on experts that this "
         "one lacks; present: share of (token, layer) that lacks none\n";
}

}  // namespace

void eval(const EvalCommandOptions& options, std::ostream& out, std::ostream& progress) {
  if (options.eval.window_tokens < 2) {
    throw Error("--window-tokens is ", options.eval.window_tokens, ", expected 2 or more");
  }
  if (!options.receipt_path.empty()) check_writable(options.receipt_path);
  if (options.max_kl && !(*options.max_kl >= 0)) {
    throw Error("--max-kl is ", *options.max_kl, ", expected 0 or more");
  }
  if (options.max_kl && options.against_path.empty()) {
    throw Error("--max-kl needs --against, the pack to measure the distance to");
  }
  if (!options.beside_paths.empty() && options.against_path.empty()) {
    throw Error("--beside needs --against, the pack to apply the plans to");
  }
  if (!options.receipt_path.empty() && !options.load.prune_plan_path.empty()) {
    throw Error(
        "--receipt would bind the result to a pack that --prune-plan makes another model: "
        "compile the plan, or leave one of the two out");
  }
  if (!options.receipt_path.empty() && options.load.missing != MissingRule::kNextBest) {
    throw Error("--receipt is about a pack as it runs unasked: leave out --missing");
  }
  LoadedModel model(options.load);
  std::unique_ptr<LoadedModel> other;
  if (!options.against_path.empty()) {
    LoadOptions load = options.load;
    load.pack_path = options.against_path;
    load.backend = options.against_backend;
    load.prune_plan_path.clear();
    load.missing = MissingRule::kNextBest;
    other = std::make_unique<LoadedModel>(load);
    check_comparable(model.pack(), other->pack());
  }

  std::unique_ptr<TraceRecorder> trace;
  if (!options.trace_path.empty()) {
    trace = std::make_unique<TraceRecorder>(options.trace_path, model.pack(), model.config(),
                                            model.plan().has_value());
  }
  std::vector<EvalText> texts;
  for (const std::string& path : options.text_paths) {
    texts.push_back(tokenized(read_text(path), model.tokenizer()));
  }
  const auto measure = [&](LoadedModel& measured, const std::string& note,
                           TraceRecorder* recorder) {
    std::vector<EvalResult> results;
    for (const EvalText& text : texts) {
      const auto on_progress = [&](int64_t positions) {
        if (options.quiet) return;
        progress << '\r' << text.name << note << ": " << positions << " positions" << std::flush;
      };
      results.push_back(evaluate(measured.forward(), other ? &other->forward() : nullptr, text,
                                 options.eval, on_progress, recorder));
      if (!options.quiet) progress << '\n';
    }
    return results;
  };
  const std::vector<EvalResult> results = measure(model, "", trace.get());
  if (trace != nullptr) trace->finish();

  std::vector<Beside> beside;
  for (const std::string& path : options.beside_paths) {
    LoadOptions load = options.load;
    load.pack_path = options.against_path;
    load.prune_plan_path = path;
    LoadedModel masked(load);
    Beside& each = beside.emplace_back();
    each.score = masked.plan()->score;
    each.experts_kept = choosable_experts(masked.weights());
    if (each.experts_kept != choosable_experts(model.weights())) {
      throw Error(path, ": keeps ", each.experts_kept, " experts, ", options.load.pack_path,
                  " has ", choosable_experts(model.weights()), ": they cannot be compared");
    }
    each.results = measure(masked, " by " + each.score, nullptr);
  }

  const std::string receipt =
      receipt_text(options, model, other ? &other->pack() : nullptr, results, beside);
  if (options.json) {
    out << receipt;
  } else {
    print_table(results, out);
    for (const Beside& each : beside) {
      out << "\nas many experts by " << each.score << ", on the other pack:\n";
      print_table(each.results, out);
    }
  }
  if (!options.receipt_path.empty()) write_text_file(options.receipt_path, receipt);
  if (options.max_kl && mean_kl(results) > *options.max_kl) {
    throw Error(options.load.pack_path, ": the mean KL is ", mean_kl(results),
                " nats, --max-kl allows ", *options.max_kl);
  }
}

}  // namespace k3
