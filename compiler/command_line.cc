#include "compiler/command_line.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compiler/attach.h"
#include "compiler/census.h"
#include "compiler/compile.h"
#include "compiler/diff.h"
#include "compiler/explain.h"
#include "compiler/inspect.h"
#include "compiler/pack_plan.h"
#include "compiler/quantities.h"
#include "compiler/synth.h"
#include "compiler/synth_presets.h"
#include "compiler/trace_import.h"
#include "compiler/trace_merge.h"
#include "compiler/trace_report.h"
#include "compiler/verify.h"
#include "passes/pipeline.h"
#include "schema/json_writer.h"
#include "schema/routing_trace.h"

namespace k3 {
namespace {

// What the chosen sub-command does once all flags are read; the result is the exit status.
using Action = std::function<int()>;

// A sub-command: `setup` declares its flags on `app` and returns its action, which owns what the
// flags are read into.
struct SubCommand {
  const char* name;
  const char* summary;
  Action (*setup)(CLI::App& app);
};

const std::map<std::string, Precision> kHeadPrecisions = {{"bf16", Precision::kSource},
                                                          {"int8", Precision::kInt8}};
const std::map<std::string, Precision> kTrunkPrecisions = {{"bf16", Precision::kSource},
                                                           {"int8", Precision::kInt8},
                                                           {"ternary", Precision::kTernary},
                                                           {"ternary2", Precision::kTernary2},
                                                           {"auto", Precision::kAuto}};

const std::map<std::string, ExpertLayout> kExpertLayouts = {{"exact", ExpertLayout::kExact},
                                                            {"compact", ExpertLayout::kCompact}};

// Turns a name of the map into what it stands for.
template <class Choice>
CLI::Validator choice_names(const std::map<std::string, Choice>& choices) {
  std::string names;
  for (const auto& [name, choice] : choices) names += (names.empty() ? "" : ",") + name;
  const auto transform = [&choices, names](std::string& name) -> std::string {
    const auto found = choices.find(name);
    if (found == choices.end()) return "is " + name + ", expected one of " + names;
    name = std::to_string(static_cast<int>(found->second));
    return {};
  };
  return {transform, "{" + names + "}"};
}

// CLI's own ranges take NaN for a number within.
CLI::Validator number_from(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const bool whole = !text.empty() && end == text.c_str() + text.size();
    if (whole && number >= least && number <= most) return "";
    return "is " + text + ", expected a number from " + shortest(least) + " to " + shortest(most);
  };
  return {check, ""};
}

// From a byte to a petabyte, in units of 10^9 bytes.
CLI::Validator gigabytes() {
  return number_from(1e-9, 1e6);
}

// "16", or "all".
CLI::Validator expert_count() {
  const auto check = [](std::string& text) -> std::string {
    const bool digits = !text.empty() && text.size() < 10 &&
                        text.find_first_not_of("0123456789") == std::string::npos;
    return digits || text == "all" || text == "ALL" ? "" : "is " + text + ", expected N or all";
  };
  return {check, "N|all"};
}

// The flags of prune_experts; call the result once they are read.
std::function<void()> add_prune_flags(CLI::App& app, CompileRequest& request) {
  PruneExpertsOptions& options = request.options.prune_experts;
  struct Texts {
    std::string keep = "all", score = "reap", cold = "drop";
    double budget_gb = 0;
  };
  const auto texts = std::make_shared<Texts>();
  CLI::Option* trace =
      app.add_option(
             "--trace", options.traces,
             "Routing traces of this model (k3exec run|eval --trace). The experts that they "
             "score highest lie first in each bank; with --prune-topk or --prune-budget-gb "
             "only those stay. May be given several times")
          ->expected(1)
          ->take_all()
          ->type_name("FILE");
  CLI::Option* keep = app.add_option("--prune-topk", texts->keep,
                                     "Keep the N experts of each layer with the highest score")
                          ->check(expert_count())
                          ->type_name("N|all")
                          ->needs(trace);
  CLI::Option* budget =
      app.add_option("--prune-budget-gb", texts->budget_gb,
                     "Keep as many experts as have this many 10^9 bytes, more in layers that lose "
                     "more by it; at least three times what a token chooses in each")
          ->check(gigabytes())
          ->type_name("GB")
          ->needs(trace)
          ->excludes(keep);
  app.add_option("--score", texts->score,
                 "What makes an expert worth keeping: reap, the mean over the tokens that chose it "
                 "of weight x norm of its output; total, the sum of these; frequency, how many "
                 "chose it; gate, the sum of its weights; random, to compare with (default reap)")
      ->check(CLI::IsMember(std::set<std::string>{"reap", "total", "frequency", "gate", "random"}))
      ->type_name("RULE")
      ->needs(trace);
  CLI::Option* plan =
      app.add_option("--prune-plan", options.plan_path, "Replay this plan, which --plan-out wrote")
          ->type_name("FILE")
          ->excludes(trace);
  app.add_option("--plan-out", request.plan_out, "Write which experts are kept, with their scores")
      ->type_name("FILE");
  app.add_option("--cold", texts->cold,
                 "What becomes of the other experts: drop, or keep in a section of their own that "
                 "no token is routed to unasked (default drop)")
      ->check(CLI::IsMember(std::set<std::string>{"drop", "keep"}))
      ->type_name("drop|keep");
  return [&options, texts, keep, budget, plan] {
    if (keep->count() > 0 && texts->keep != "all" && texts->keep != "ALL") {
      options.keep = std::stoll(texts->keep);
    }
    if (budget->count() > 0) options.budget_bytes = static_cast<int64_t>(texts->budget_gb * 1e9);
    if (plan->count() == 0) options.score = *parse_expert_score(texts->score);
    options.keep_cold = texts->cold == "keep";
  };
}

std::string describe_passes() {
  std::string text = "Stop after this pass, print the plan as it stands, write nothing:";
  for (const Pass& pass : passes()) {
    text += "\n  " + std::string(pass.name) + ": " + std::string(pass.summary);
  }
  return text;
}

void add_budget_flags(CLI::App& app, TrunkBudget& budget) {
  app.add_option("--sensitivity", budget.sensitivity,
                 "What each matrix costs in each format, a .k3sens file of k3exec sensitivity; "
                 "with --trunk auto")
      ->type_name("FILE");
  CLI::Option* budget_gb =
      app.add_option("--trunk-budget-gb", budget.gigabytes,
                     "With --trunk auto: the most that the trunk may take as stored, in GB of 10^9 "
                     "bytes; spent where it saves most KL")
          ->check(gigabytes())
          ->type_name("X");
  app.add_option("--trunk-bits", budget.average_bits,
                 "The same as nominal bits a weight over the matrices: 1.66 for ternary, 3.27 for "
                 "ternary2, 8.05 for int8, 16 for bf16, however narrow rows are padded")
      ->check(number_from(0, 64))
      ->excludes(budget_gb)
      ->type_name("B");
  app.add_option("--max-kl", budget.max_kl,
                 "With --trunk auto: the most KL in nats that may be predicted; without a budget "
                 "the smallest trunk is taken that keeps it. Status 1 when it cannot be kept")
      ->check(number_from(0, 1e6))
      ->type_name("Y");
}

// auto and its flags go together.
void check_budget(const TernaryTrunkOptions& options) {
  const TrunkBudget& budget = options.budget;
  const bool bounded = budget.gigabytes || budget.average_bits || budget.max_kl;
  if (options.trunk == Precision::kAuto) {
    if (budget.sensitivity.empty()) throw CLI::RequiredError("--trunk auto: --sensitivity");
    if (!bounded) {
      throw CLI::RequiredError("--trunk auto: one of --trunk-budget-gb, --trunk-bits, --max-kl");
    }
  } else if (bounded || !budget.sensitivity.empty()) {
    throw CLI::ValidationError(
        "--sensitivity, --trunk-budget-gb, --trunk-bits and --max-kl are for --trunk auto");
  }
}

Action setup_compile(CLI::App& app) {
  const auto request = std::make_shared<CompileRequest>();
  app.add_option("CHECKPOINT", request->checkpoint,
                 "The folder with config.json, the index and the safetensors shards")
      ->required();
  CLI::Option* output =
      app.add_option("-o,--output", request->output,
                     "The pack to write. It appears, or replaces an earlier pack, only when it is "
                     "complete");
  app.add_option("--trunk", request->options.ternary_trunk.trunk,
                 "Format of the trunk's matrices: bf16 keeps the source's precision, int8 stores "
                 "8.09 bits a weight, ternary2 3.27 and ternary 1.66: solved for --calibration, "
                 "rounded without. auto chooses among them matrix by matrix. Routers, norms and "
                 "low-rank gates always stay (default bf16)")
      ->transform(choice_names(kTrunkPrecisions))
      ->type_name("FORMAT");
  add_budget_flags(app, request->options.ternary_trunk.budget);
  app.add_option("--head", request->options.ternary_trunk.head,
                 "Format of lm_head: bf16 or int8 (default bf16)")
      ->transform(choice_names(kHeadPrecisions))
      ->type_name("FORMAT");
  app.add_option("--calibration", request->options.ternary_trunk.calibration,
                 "What the trunk's matrices read, a .k3cal file of k3exec capture: ternary and "
                 "ternary2 are then solved for it, and the error of every matrix is measured on "
                 "documents that the solver does not see")
      ->type_name("FILE");
  app.add_option(
         "--tuned", request->options.tuning.path,
         "Block scales and norm gains tuned for the pack that the same command makes "
         "without this flag, and codes trained with them: a .k3tune file of k3exec fit, k3exec "
         "tune or another training program")
      ->type_name("FILE");
  app.add_option("--training-steps", request->options.ternary_trunk.solver.training_steps,
                 "Steps of straight-through training after descent, for each solved matrix; 0 "
                 "leaves it out (default " +
                     std::to_string(SolverOptions{}.training_steps) + ")")
      ->check(CLI::Range(0, 100000))
      ->type_name("N");
  app.add_flag("--keep-work", request->keep_work,
               "Leave OUT.work, the folder with the solved matrices: a later compile of the same "
               "weights, calibration and options takes them from there");
  app.add_flag(
      "--rotate", request->options.rotate_stream.rotate,
      "Fold norm gains into the weights and rotate the residual stream, so that no channel "
      "is an outlier for the formats with few bits. Exact but for rounding; what keeps its "
      "precision becomes f32, and a few vectors are rotated when the pack runs");
  app.add_option("--rotate-seed", request->options.rotate_stream.seed,
                 "Another rotation: the seed of its signs (default 0)")
      ->needs("--rotate")
      ->type_name("N");
  app.add_option(
         "--experts", request->options.reorder_layout.experts,
         "Layout of the experts: exact keeps their bytes as they are, compact stores half a "
         "byte for each scale where that loses nothing, 2.9 % fewer bytes. Outputs are the "
         "same bits (default exact)")
      ->transform(choice_names(kExpertLayouts))
      ->type_name("LAYOUT");
  app.add_option("--threads", request->threads,
                 "Threads to use; the pack's bytes do not depend on it (default: one per core)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  app.add_option_function<double>(
         "--memory-gb",
         [request](double memory_gb) {
           request->memory_bytes = static_cast<int64_t>(memory_gb * 1e9);
         },
         "A ceiling for the memory taken, in GB of 10^9 bytes: fewer threads encode below it")
      ->check(number_from(0.001, 1e6))
      ->type_name("X");
  app.add_flag("--resume", request->resume,
               "Go on with what a killed compile left beside OUT, if anything; what is there is "
               "checked against its hashes first. With this flag an interrupted compile leaves its "
               "work too");
  CLI::Option* dry_run =
      app.add_flag("--dry-run", request->dry_run,
                   "Plan everything, print the table and the exact size of the pack, write "
                   "nothing");
  std::vector<std::string> names;
  for (const Pass& pass : passes()) names.emplace_back(pass.name);
  CLI::Option* stop_after = app.add_option("--stop-after", request->stop_after, describe_passes())
                                ->check(CLI::IsMember(names))
                                ->type_name("PASS");
  const auto read_prune_flags = add_prune_flags(app, *request);
  app.add_flag("--json", request->json, "Print the result as JSON");
  app.add_flag("--quiet", request->quiet, "No progress on stderr");
  return [request, output, dry_run, stop_after, read_prune_flags] {
    read_prune_flags();
    const bool writes = dry_run->count() == 0 && stop_after->count() == 0;
    if (writes && output->count() == 0) throw CLI::RequiredError("--output");
    check_budget(request->options.ternary_trunk);
    run_compile(*request);
    return 0;
  };
}

Action setup_census(CLI::App& app) {
  const auto options = std::make_shared<CensusOptions>();
  app.add_option("CHECKPOINT", options->path,
                 "A checkpoint folder, or one .safetensors file; only headers are read")
      ->required();
  app.add_flag("--json", options->json, "Print the result as JSON");
  return [options] {
    run_census(*options, std::cout);
    return 0;
  };
}

Action setup_inspect(CLI::App& app) {
  const auto request = std::make_shared<InspectRequest>();
  app.add_option("PACK", request->pack, "The pack; only its index is read")->required();
  CLI::Option* report = app.add_option("--report", request->report,
                                       "Print one of the reports inside the pack instead: "
                                       "decisions, sources, trunk_errors (text) "
                                       "or source_hashes (8 bytes each)")
                            ->type_name("NAME");
  app.add_flag("--json", request->json, "Print the result as JSON")->excludes(report);
  return [request] {
    run_inspect(*request);
    return 0;
  };
}

Action setup_verify(CLI::App& app) {
  const auto request = std::make_shared<VerifyRequest>();
  app.add_option("PACK", request->pack, "The pack; every byte of it is read")->required();
  app.add_flag("--json", request->json, "Print the result and every fault as JSON");
  app.add_flag("--quiet", request->quiet, "No progress on stderr");
  return [request] { return run_verify(*request) ? 0 : 1; };
}

Action setup_explain(CLI::App& app) {
  const auto request = std::make_shared<ExplainRequest>();
  app.add_option("PACK", request->pack, "The pack; its index and reports are read")->required();
  app.add_option("NAME", request->name,
                 "A tensor, e.g. model.layers.7.self_attn.g_proj.weight, with or without the "
                 "checkpoint's prefix; or an expert, e.g. model.layers.3.experts.17")
      ->required();
  app.add_flag("--json", request->json, "Print the result as JSON");
  return [request] {
    run_explain(*request);
    return 0;
  };
}

Action setup_diff(CLI::App& app) {
  const auto request = std::make_shared<DiffRequest>();
  const auto check = std::make_shared<bool>(false);
  app.add_option("A", request->a, "A pack; its index and source hashes are read")->required();
  app.add_option("B", request->b, "The pack to compare it with")->required();
  app.add_flag("--json", request->json, "Print every difference as JSON");
  app.add_flag("--check", *check,
               "End with status 1 when the payloads differ; without it a difference is a result, "
               "not a failure, and the status is 0");
  return [request, check] {
    const bool same_payload = run_diff(*request);
    return *check && !same_payload ? 1 : 0;
  };
}

Action setup_attach(CLI::App& app) {
  struct Request {
    std::string pack;
    std::string receipt;
    bool json = false;
  };
  const auto request = std::make_shared<Request>();
  app.add_option("PACK", request->pack, "The pack that was measured; it is changed in place")
      ->required();
  app.add_option("RECEIPT", request->receipt, "The receipt that k3exec wrote, a .k3eval file")
      ->required();
  app.add_flag("--json", request->json, "Print the result as JSON");
  return [request] {
    run_attach(request->pack, request->receipt, request->json);
    return 0;
  };
}

Action setup_trace_stats(CLI::App& app) {
  const auto request = std::make_shared<TraceStatsRequest>();
  request->replay_tokens = 20000;
  app.add_option("TRACE", request->traces, "Routing traces of one model, .k3trace files")
      ->required();
  app.add_option("--heldout", request->held_out,
                 "Test what the most used experts cover on this trace instead of on every other "
                 "document. May be given several times")
      ->expected(1)
      ->take_all()
      ->type_name("TRACE");
  app.add_option("--cache-gb", request->cache_gb,
                 "Cache sizes to replay, in 10^9 bytes: 12.9,24,51.7 (default: shares of all "
                 "experts from 3 % to 75 %)")
      ->delimiter(',')
      ->expected(1)
      ->take_all()
      ->check(gigabytes())
      ->type_name("GB,...");
  app.add_option("--expert-bytes", request->expert_bytes,
                 "Bytes of one expert (default: what the trace says)")
      ->check(CLI::Range(int64_t{1}, kMostExpertBytes))
      ->type_name("N");
  app.add_option("--replay-tokens", request->replay_tokens,
                 "Replay caches over the first N tokens; 0 leaves it out (default 20000)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  app.add_option("--svg", request->svg_folder,
                 "Draw load, coverage and cache hits into this folder")
      ->type_name("DIR");
  app.add_flag("--json", request->json, "Print the result as JSON");
  return [request] {
    run_trace_stats(*request, std::cout);
    return 0;
  };
}

// What the commands say that write a trace.
void print_trace(const std::string& path, int64_t tokens, bool as_json) {
  if (!as_json) {
    std::cout << path << ": " << grouped(tokens) << " tokens\n";
    return;
  }
  JsonWriter json(std::cout, 2);
  json.begin_object();
  json.member("trace", path);
  json.member("tokens", tokens);
  json.end_object();
  std::cout << '\n';
}

Action setup_trace_merge(CLI::App& app) {
  struct Request {
    std::vector<std::string> traces;
    std::string output;
    bool json = false;
  };
  const auto request = std::make_shared<Request>();
  app.add_option("TRACE", request->traces, "Whole traces of one model")->required();
  app.add_option("-o,--output", request->output, "The trace to write")->required();
  app.add_flag("--json", request->json, "Print the result as JSON");
  return [request] {
    print_trace(request->output, merge_traces(request->traces, request->output), request->json);
    return 0;
  };
}

Action setup_trace_import(CLI::App& app) {
  const auto request = std::make_shared<TraceImportRequest>();
  const auto json = std::make_shared<bool>(false);
  app.add_option("JSONL", request->json_lines,
                 "A line per token: {\"tok\":n,\"layers\":[[ids],...]}")
      ->required();
  app.add_option("-o,--output", request->output, "The trace to write")->required();
  CLI::Option* pack = app.add_option("--pack", request->pack,
                                     "A pack of the model that was traced; without it the trace "
                                     "serves statistics only")
                          ->type_name("PACK");
  app.add_option("--experts", request->experts,
                 "Experts of a layer, where no pack says it (default: the largest id and one)")
      ->check(CLI::Range(1, 65535))
      ->type_name("N")
      ->excludes(pack);
  app.add_option("--expert-bytes", request->expert_bytes,
                 "Bytes of one expert (default: the pack's)")
      ->check(CLI::Range(int64_t{1}, kMostExpertBytes))
      ->type_name("N");
  app.add_flag("--json", *json, "Print the result as JSON");
  return [request, json] {
    print_trace(request->output, import_trace(*request), *json);
    return 0;
  };
}

Action setup_trace(CLI::App& app) {
  constexpr auto kTraceCommands = std::to_array<SubCommand>({
      {"stats", "Show how experts are used, and what caches and keep-sets would cover",
       setup_trace_stats},
      {"merge", "Make one trace of several", setup_trace_merge},
      {"import", "Make a trace of JSON lines from another program", setup_trace_import},
  });
  app.require_subcommand(1);
  const auto action = std::make_shared<Action>();
  for (const SubCommand& command : kTraceCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->callback([action, made = command.setup(*sub)] { *action = made; });
  }
  return [action] { return (*action)(); };
}

std::string describe_presets() {
  std::string text = "Which model (default nano):";
  for (const SynthPreset& preset : synth_presets()) {
    text += "\n  " + std::string(preset.name) + ": " + std::string(preset.summary);
  }
  return text;
}

Action setup_synth(CLI::App& app) {
  const auto options = std::make_shared<SynthOptions>();
  app.add_option("OUT", options->out, "The folder to make. It appears when it is complete")
      ->required();
  std::vector<std::string> names;
  for (const SynthPreset& preset : synth_presets()) names.emplace_back(preset.name);
  app.add_option("--preset", options->preset, describe_presets())
      ->check(CLI::IsMember(names))
      ->type_name("NAME");
  CLI::Option* layers =
      app.add_option("--layers", options->layers, "Make the first N layers only")->type_name("N");
  app.add_option("--layer-map", options->layer_map,
                 "Make these layers instead, a letter each: K is KDA, M is MLA, lower case has a "
                 "dense FFN")
      ->excludes(layers)
      ->type_name("MAP");
  app.add_option("--experts", options->experts, "Make the first N experts of each layer only")
      ->type_name("N");
  app.add_option("--vocab", options->vocabulary, "Make a vocabulary of N tokens")->type_name("N");
  app.add_flag("--headers-only", options->headers_only,
               "True headers over files of holes: the whole of K3 in no space, to plan with");
  app.add_option("--seed", options->seed, "Another seed makes other weights (default 0)")
      ->type_name("N");
  app.add_option("--threads", options->threads,
                 "Threads to use; no byte depends on it (default: one per core)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  app.add_flag("--json", options->json, "Print the result as JSON");
  app.add_flag("--quiet", options->quiet, "No progress on stderr");
  return [options] {
    run_synth(*options, std::cout);
    return 0;
  };
}

constexpr auto kSubCommands = std::to_array<SubCommand>({
    {"census", "Count what a checkpoint holds, from its headers alone", setup_census},
    {"compile", "Compile a checkpoint into a pack", setup_compile},
    {"inspect", "Show what a pack holds and where it came from", setup_inspect},
    {"verify", "Check every byte of a pack against its hashes", setup_verify},
    {"explain", "Show what was decided about one tensor or expert, why, from which bytes",
     setup_explain},
    {"diff", "Show in what two packs differ", setup_diff},
    {"synth", "Make a checkpoint in the shape of a real one, from a seed", setup_synth},
    {"trace", "Work with routing traces: stats, merge, import", setup_trace},
    {"attach", "Add a measured quality result to the pack it was measured on", setup_attach},
});

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app("k3c compiles a Kimi K3 checkpoint (safetensors) into one .k3pack that k3exec runs");
  app.set_version_flag("--version", kCompilerName, "Print the version and exit");
  app.require_subcommand(1);
  Action action;
  for (const SubCommand& command : kSubCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->callback([&action, made = command.setup(*sub)] { action = made; });
  }
  try {
    app.parse(argc, argv);
    return action();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version: on stdout
    std::cerr << "k3c: " << error.what() << "; see k3c --help\n";
    return 2;
  }
}

}  // namespace k3
