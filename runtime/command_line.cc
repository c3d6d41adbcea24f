#include "runtime/command_line.h"

#include <tbb/global_control.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <iostream>
#include <memory>

#include "kernels/instruction_set.h"
#include "runtime/bench.h"
#include "runtime/bench_kernels.h"
#include "runtime/capture.h"
#include "runtime/eval.h"
#include "runtime/fit.h"
#include "runtime/propagate.h"
#include "runtime/run.h"
#include "runtime/sensitivity.h"
#include "runtime/tune.h"
#include "schema/error.h"

namespace k3 {
namespace {

std::string list_instruction_sets() {
  std::string names;
  for (const std::string& name : instruction_sets()) {
    names.append(names.empty() ? "" : ", ").append(name);
  }
  return names;
}

// A sub-command: `add` declares its flags on `app` and returns what runs it.
struct SubCommand {
  const char* name;
  const char* summary;
  std::function<void()> (*add)(CLI::App& app);
};

// Turns one of the names of an enumeration, which stand in the order of its values, into its value.
template <size_t kCount>
CLI::Validator choice_of(const std::array<std::string_view, kCount>& names) {
  std::string list;
  for (std::string_view name : names) list += (list.empty() ? "" : ",") + std::string(name);
  const auto transform = [&names, list](std::string& name) -> std::string {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return "is " + name + ", expected one of " + list;
    name = std::to_string(found - names.begin());
    return {};
  };
  return {transform, "{" + list + "}"};
}

// Returns the option of the pack.
CLI::Option* add_load_flags(CLI::App& app, LoadOptions& load) {
  CLI::Option* pack = app.add_option("pack", load.pack_path, "The .k3pack to run")->required();
  app.add_option(
         "--backend", load.backend,
         "cpu: the exact numerics, the same bits on every machine and at any thread count; "
         "cuda: the same bits on a GPU; auto: cuda if the pack fits one here, else cpu, and "
         "says why; reference: float activations and double sums, slow, for comparison")
      ->capture_default_str();
  app.add_option(
      "--gpu-experts-gb", load.gpu_experts_gb,
      "Memory of the GPU for routed experts, in 10^9 bytes (default: what is free). When "
      "not all fit, they come from the host's as they are needed; changes no result");
  app.add_option("--numerics", load.numerics,
                 "exact, or with --backend cuda fp64: products in double on float activations, to "
                 "audit the exact ones")
      ->capture_default_str();
  app.add_option(
         "--chunk-tokens", load.chunk_tokens,
         "Most prompt tokens that pass the layers together; changes speed and memory, not results")
      ->capture_default_str();
  app.add_option("--expert-cache-gb", load.expert_cache_gb,
                 "Memory for routed experts, in 10^9 bytes (default: nine tenths of what is free)");
  app.add_option("--expert-cache-policy", load.expert_cache_policy,
                 "Which expert makes room when not all fit: the one used longest ago, of all or of "
                 "its layer, or the one used least of late; changes speed, not results (default "
                 "lfu-decayed)")
      ->transform(choice_of(kEvictionPolicyNames))
      ->type_name("POLICY");
  app.add_option("--prefetch", load.prefetch_experts,
                 "Experts of each next layer to read before its router has chosen, while the disk "
                 "has nothing else to do; changes speed, not results (default as many as a token "
                 "chooses)")
      ->type_name("N");
  app.add_option("--expert-reads", load.expert_reads,
                 "How experts are read that do not all fit: direct, past the page cache where the "
                 "filesystem allows it, or buffered, through it (default direct)")
      ->transform(choice_of(kReadPathNames))
      ->type_name("PATH");
  app.add_option("--prune-plan", load.prune_plan_path,
                 "Take the experts that this plan of `k3c compile --plan-out` drops for missing; "
                 "the pack must have them all");
  app.add_option("--missing", load.missing,
                 "When the router wants an expert that is missing. next-best: it does not choose "
                 "it; fetch: it is read from the cold section; drop: it adds nothing, and the "
                 "others keep their weights (default next-best)")
      ->transform(choice_of(kMissingRuleNames))
      ->type_name("WAY");
  app.add_flag("!--no-verify", load.verify, "Do not check the hashes of what is read");
  return pack;
}

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    if (*at == ',' || *at == ' ') {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc()) {
      throw Error("--ids: \"", text, "\" is not a list of token ids such as 2032,84,263");
    }
    ids.push_back(id);
    at = next;
  }
  if (ids.empty()) throw Error("--ids: the list is empty");
  return ids;
}

std::function<void()> add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  auto ids = std::make_shared<std::string>();
  add_load_flags(app, options->load);
  app.add_option("--layers", options->load.layers,
                 "Run the first N layers only, then output mix, norm and head: another model, for "
                 "trying real dimensions; the other layers are not read")
      ->type_name("N");
  auto* prompt = app.add_option("-p,--prompt", options->prompt, "Text to continue");
  auto* file =
      app.add_option("--prompt-file", options->prompt_path, "File with the text to continue");
  auto* list = app.add_option("--ids", *ids, "Token ids to continue, fed as they are: 2032,84,263");
  prompt->excludes(file)->excludes(list);
  file->excludes(list);
  app.add_option("-n,--max-new-tokens", options->generate.max_new_tokens, "Most tokens to generate")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--temperature", options->generate.sampling.temperature,
                 "0: the most likely token; the vendor's advice for K3 is 1.0 with --top-p 0.95")
      ->capture_default_str();
  app.add_option("--top-p", options->generate.sampling.top_p,
                 "Draw from the fewest most likely tokens whose probabilities reach this sum")
      ->capture_default_str();
  app.add_option("--seed", options->generate.sampling.seed, "Seed of the draws")
      ->capture_default_str();
  app.add_option("--stop", options->generate.stop,
                 "End before this text; may be given several times")
      ->expected(1)
      ->take_all();
  auto* chat = app.add_flag("--chat", options->chat,
                            "The prompt is a user's message in K3's message format");
  app.add_option("--system", options->system, "A system message before it")->needs(chat);
  app.add_flag("--instruct", options->instruct, "Answer without a think channel")->needs(chat);
  chat->excludes(list);
  app.add_option("--dump", options->dump_path,
                 "Write ids, logits, hidden, route_ids and route_weights of every position to this "
                 "safetensors file");
  app.add_option("--trace", options->trace_path,
                 "Record which experts each token chooses, and how strongly, to this .k3trace "
                 "file, for `k3c trace` and `k3c compile --trace`");
  app.add_option("--save-state", options->save_state_path, "Write the sequence's state at the end");
  app.add_option("--load-state", options->load_state_path,
                 "Continue from a state written by --save-state");
  app.add_flag("--json", options->json, "Write one JSON object instead of streaming text");
  return [options, ids] {
    if (!ids->empty()) options->ids = parse_ids(*ids);
    run(*options, std::cout);
  };
}

std::function<void()> add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalCommandOptions>();
  add_load_flags(app, options->load);
  app.add_option("--text", options->text_paths,
                 "Texts: plain files, or .jsonl with one document a line in \"text\"")
      ->required();
  app.add_option("--against", options->against_path,
                 "Another pack of the same model: report KL(other || this) on the same tokens");
  app.add_option("--against-backend", options->against_backend, "The backend that runs it")
      ->capture_default_str();
  app.add_option("--window-tokens", options->eval.window_tokens,
                 "Tokens of a window; each starts from a fresh state")
      ->capture_default_str();
  app.add_option("--beside", options->beside_paths,
                 "Prune plans to apply to the other pack and to measure likewise; the receipt then "
                 "shows these choices beside this pack's")
      ->type_name("PLAN");
  app.add_option("--max-kl", options->max_kl,
                 "Exit with status 1 when the mean KL is above this, in nats");
  app.add_option("--receipt", options->receipt_path, "Write the result for `k3c attach`");
  app.add_option(
      "--trace", options->trace_path,
      "Record this pack's routing on the texts to this .k3trace file, a domain per text");
  app.add_flag("--json", options->json, "Write the result as JSON");
  app.add_flag("-q,--quiet", options->quiet, "No progress on stderr");
  return [options] { eval(*options, std::cout, std::cerr); };
}

void add_window_flags(CLI::App& app, WindowOptions& windows) {
  app.add_option("--window-tokens", windows.window_tokens,
                 "Tokens of a window; each starts from a fresh state")
      ->capture_default_str();
  app.add_option("--max-tokens", windows.max_tokens,
                 "Most tokens to use; of longer texts windows at equal distances are taken")
      ->capture_default_str();
}

std::function<void()> add_sensitivity(CLI::App& app) {
  auto options = std::make_shared<SensitivityOptions>();
  add_load_flags(app, options->load);
  app.add_option("--candidates", options->candidate_paths,
                 "Packs of the same checkpoint with the trunk in other formats: C1,C2,...")
      ->required()
      ->delimiter(',');
  app.add_option("--text", options->text_paths,
                 "Calibration texts; the documents of their select half are used")
      ->required();
  add_window_flags(app, options->windows);
  app.add_option("-o,--output", options->output_path,
                 "The .k3sens file to write, for `k3c compile --trunk auto`")
      ->required();
  app.add_flag("--json", options->json, "Write the file's content to stdout instead of a table");
  app.add_flag("-q,--quiet", options->quiet, "No progress on stderr");
  return [options] { sensitivity(*options, std::cout, std::cerr); };
}

std::function<void()> add_fit(CLI::App& app) {
  auto options = std::make_shared<FitOptions>();
  add_load_flags(app, options->load);
  app.add_option("--teacher-pack", options->teacher_path,
                 "The pack whose outputs the scales are fitted to: the same checkpoint in bf16")
      ->required();
  app.add_option("--text", options->text_paths,
                 "Calibration texts; the documents of their fit half are used")
      ->required();
  add_window_flags(app, options->windows);
  app.add_option("-o,--output", options->output_path,
                 "The .k3tune file to write, for `k3c compile --tuned`")
      ->required();
  app.add_flag("--json", options->json, "Write the result as JSON");
  app.add_flag("-q,--quiet", options->quiet, "No progress on stderr");
  return [options] { fit(*options, std::cout, std::cerr); };
}

std::function<void()> add_tune(CLI::App& app) {
  auto options = std::make_shared<TuneOptions>();
  app.add_option("pack", options->pack_path, "The .k3pack to tune")->required();
  app.add_option("--teacher-pack", options->teacher_path,
                 "The pack whose predictions it should give: the same checkpoint in bf16")
      ->required();
  app.add_option("--text", options->text_paths,
                 "Calibration texts; the documents of their fit half are trained on, those of "
                 "their select half measured")
      ->required();
  app.add_option("--start", options->start_path,
                 "Go on from this .k3tune file for the same pack, of `k3exec fit` or of this");
  app.add_option("--steps", options->schedule.steps, "How often the parameters change")
      ->capture_default_str();
  app.add_option("--step-tokens", options->schedule.step_tokens, "Tokens that a change is based on")
      ->capture_default_str();
  app.add_option("--learning-rate", options->schedule.learning_rate,
                 "Most that a step changes a parameter, relative to its size; falls to nothing")
      ->capture_default_str();
  CLI::Option* codes =
      app.add_flag("--codes", options->train_codes,
                   "Train the codes of all matrices too, straight through their rounding");
  app.add_option("--code-rate", options->schedule.code_rate,
                 "Most that a step moves what a code is rounded from; falls to nothing")
      ->capture_default_str()
      ->needs(codes);
  app.add_option("--window-tokens", options->window_tokens,
                 "Tokens of a window; each starts from a fresh state")
      ->capture_default_str();
  app.add_option("--check-tokens", options->check_tokens, "Most tokens to measure on")
      ->capture_default_str();
  app.add_option("--backend", options->backend, "cpu, or reference: slow, for comparison")
      ->capture_default_str();
  app.add_option("-o,--output", options->output_path,
                 "The .k3tune file to write, for `k3c compile --tuned`")
      ->required();
  app.add_flag("!--no-verify", options->verify, "Do not check the hashes of what is read");
  app.add_flag("--json", options->json, "Write the result as JSON");
  app.add_flag("-q,--quiet", options->quiet, "No progress on stderr");
  return [options] { tune(*options, std::cout, std::cerr); };
}

std::function<void()> add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  auto kernels = std::make_shared<BenchKernelsOptions>();
  auto is_kernels = std::make_shared<bool>(false);
  CLI::Option* pack = add_load_flags(app, options->load)->required(false);
  CLI::Option* flag = app.add_flag("--kernels", *is_kernels,
                                   "Measure each kernel on K3's shapes instead of a pack's model");
  app.add_option("--only", kernels->benchmark.only,
                 "With --kernels: those whose operation and format contain this text")
      ->needs(flag);
  app.add_option("--cols", kernels->benchmark.cols,
                 "With --kernels: inputs of the matrices, a multiple of 32")
      ->capture_default_str()
      ->check(CLI::Range(32, 1 << 20))
      ->needs(flag);
  pack->excludes(flag);
  app.add_option("--prompt-tokens", options->benchmark.prompt_tokens, "Tokens of the prefill")
      ->capture_default_str();
  app.add_option("--new-tokens", options->benchmark.new_tokens, "Tokens decoded one by one")
      ->capture_default_str();
  app.add_option("--rounds", options->benchmark.rounds, "Measured rounds, after one of warming up")
      ->capture_default_str();
  app.add_flag("--json", options->json, "Write the result as JSON");
  return [options, kernels, is_kernels] {
    if (*is_kernels) {
      if (kernels->benchmark.cols % 32 != 0) {
        throw Error("--cols is ", kernels->benchmark.cols, ", expected a multiple of 32");
      }
      kernels->backend = options->load.backend;
      kernels->json = options->json;
      bench_kernels(*kernels, std::cout);
      return;
    }
    if (options->load.pack_path.empty()) throw Error("bench needs a pack, or --kernels");
    bench(*options, std::cout);
  };
}

std::function<void()> add_propagate(CLI::App& app) {
  auto options = std::make_shared<PropagateOptions>();
  app.add_option("pack", options->pack_path, "The compressed .k3pack")->required();
  app.add_option("--against", options->against_path, "The .k3pack it was compressed from")
      ->required();
  app.add_option("--text", options->text_paths, "Text files, or .jsonl with one document a line")
      ->required();
  app.add_option("--backend", options->backend,
                 "reference keeps activations in float; the exact ones round them to 16 bits, in "
                 "which small errors drown")
      ->capture_default_str();
  app.add_option("--tokens", options->tokens, "Tokens of all documents together")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--document-tokens", options->document_tokens,
                 "Longer documents are cut into pieces of so many")
      ->capture_default_str()
      ->check(CLI::Range(2, 4096));
  app.add_option("--directions", options->growth.random_directions,
                 "Random errors tried at each layer; at least 64 where no Jacobian is made")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--injections", options->growth.injections,
                 "Layers, spread evenly, that are compressed alone")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--widest-jacobian", options->growth.widest_jacobian,
                 "The worst direction comes from a Jacobian where a token's state has at most so "
                 "many values; two runs of the layer for each")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", options->growth.seed, "Seed of the random errors")
      ->capture_default_str();
  app.add_option("--svg", options->svg_path, "Write the growth by layer as a picture");
  app.add_flag("!--no-verify", options->verify, "Do not check the hashes of what is read");
  app.add_flag("--json", options->json, "Write the result as JSON");
  app.add_flag("-q,--quiet", options->quiet, "No progress on stderr");
  return [options] { propagate(*options, std::cout, std::cerr); };
}

std::function<void()> add_capture(CLI::App& app) {
  auto options = std::make_shared<CaptureOptions>();
  app.add_option("pack", options->pack_path, "The .k3pack to run");
  app.add_option("--text", options->text_paths,
                 "Calibration texts: plain files, or .jsonl with one document a line in \"text\"; "
                 "never held-out ones");
  app.add_option("--calibration", options->calibration_path,
                 "Write the Gram matrices of what every trunk matrix reads to this .k3cal");
  app.add_option(
      "--propagated", options->propagated_path,
      "A compressed pack of the same checkpoint: capture what its matrices read, and how "
      "that goes with what the pack's read");
  app.add_option("--teacher", options->teacher_path,
                 "Write the pack's likeliest next tokens after every token to this .k3teach");
  app.add_option("--trace", options->trace_path,
                 "Record which experts each token of the pack chooses, and how strongly, to this "
                 ".k3trace file");
  app.add_option("--top-k", options->top_k, "Tokens that the teacher keeps of each prediction")
      ->capture_default_str();
  app.add_option("--window-tokens", options->window_tokens,
                 "Cut documents into windows of so many tokens, each from a fresh state (default: "
                 "whole documents; attention over a long one costs its length squared)");
  app.add_option("--first-layer", options->first_layer, "Capture from this layer on")
      ->capture_default_str();
  app.add_option("--last-layer", options->last_layer,
                 "Stop behind this layer (default: all, and the head)");
  app.add_option("--memory-gb", options->memory_gb,
                 "Memory to stay below, in 10^9 bytes (default: nine tenths of what is free); "
                 "changes no result");
  app.add_option("--backend", options->backend, "cpu, cuda or reference, as for run")
      ->capture_default_str();
  app.add_option("--chunk-tokens", options->chunk_tokens,
                 "Most tokens that pass a layer together; changes speed and memory, not results")
      ->capture_default_str();
  app.add_flag("!--no-verify", options->verify, "Do not check the hashes of what is read");
  app.add_option("--merge", options->merge_paths,
                 "Add up two or more .k3cal files of the same packs into --calibration");
  app.add_flag("--json", options->json, "Write the result as JSON");
  app.add_flag("-q,--quiet", options->quiet, "No progress on stderr");
  return [options] { capture(*options, std::cout, std::cerr); };
}

constexpr auto kSubCommands = std::to_array<SubCommand>({
    {"run", "Generate text from a pack", add_run},
    {"eval", "Measure perplexity on texts, and the distance to another pack", add_eval},
    {"propagate", "Measure how a compressed pack's error travels through the layers",
     add_propagate},
    {"capture", "Record what the trunk's matrices read, and what the model predicts", add_capture},
    {"sensitivity", "Measure what each trunk matrix costs in another format", add_sensitivity},
    {"fit", "Fit a compressed pack's scales to its teacher, layer by layer", add_fit},
    {"tune", "Train a compressed pack's scales and gains against its teacher, end to end",
     add_tune},
    {"bench", "Measure speed, per operation and against this machine's memory", add_bench},
});

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app("Runs .k3pack files: Kimi K3 models that k3c has compiled.", "k3exec");
  app.set_version_flag("--version", "k3exec " K3_VERSION);
  app.require_subcommand(1);
  int threads = 0;
  app.add_option("--threads", threads,
                 "Threads to compute with (default: all cores); changes no result")
      ->check(CLI::Range(1, 4096));
  std::string isa;
  app.add_option("--isa", isa,
                 "Instruction set for the cpu backend (default: the best one here); changes no "
                 "result. Here: " +
                     list_instruction_sets());
  app.fallthrough();
  std::function<void()> chosen;
  for (const SubCommand& command : kSubCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->fallthrough();
    sub->callback([&chosen, work = command.add(*sub)] { chosen = work; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::unique_ptr<tbb::global_control> limit;
  if (threads > 0) {
    limit = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                  static_cast<size_t>(threads));
  }
  if (!isa.empty()) force_instruction_set(isa);
  chosen();
  return 0;
}

}  // namespace k3
