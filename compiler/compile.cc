// The whole compiler in one screen: import, passes, index, encode. Everything that can be refused
// is refused before the first byte is written: the plan goes through the very checks that a reader
// makes, and the file's exact size is known and compared with the free space.
#include "compiler/compile.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <span>
#include <vector>

#include "compiler/checkpoint.h"
#include "compiler/encode.h"
#include "compiler/encode_journal.h"
#include "compiler/families.h"
#include "compiler/memory_plan.h"
#include "compiler/pack_encode.h"
#include "compiler/pack_plan.h"
#include "compiler/pack_writer.h"
#include "compiler/report.h"
#include "compiler/untuned_payload.h"
#include "passes/pipeline.h"
#include "passes/progress.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/pack_check.h"
#include "schema/pack_extents.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;

// A pack written over one of its own shards would eat its input.
void check_output_apart(const std::string& output, const Model& model) {
  for (const auto& shard : model.shards) {
    std::error_code ignored;
    if (fs::equivalent(output, shard->path(), ignored)) {
      throw Error(output, ": is a shard of the checkpoint, expected another path");
    }
  }
}

void check_free_space(const std::string& output, int64_t file_bytes) {
  auto folder = fs::path(output).parent_path();
  if (folder.empty()) folder = ".";
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw Error(output, ": there is no folder ", folder.string());
  }
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return;
  auto free_bytes = static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
  // What a killed compile reserved is taken over or removed.
  struct stat left_over {};
  constexpr uint64_t kBlockBytes = 512;
  if (::stat((output + ".unfinished").c_str(), &left_over) == 0) {
    free_bytes += static_cast<uint64_t>(left_over.st_blocks) * kBlockBytes;
  }
  if (static_cast<uint64_t>(file_bytes) > free_bytes) {
    throw Error(output, ": needs ", file_bytes, " bytes (", format_bytes(file_bytes),
                "), its disk has ", free_bytes, " free");
  }
}

void write_plan(const std::optional<PrunePlan>& plan, const std::string& path) {
  if (!plan) {
    throw Error(path,
                ": there is no prune plan to write: none was made before --stop-after, or "
                "neither --trace nor --prune-plan was given");
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << format_prune_plan(*plan) << std::flush;
  if (!file) throw Error(path, ": cannot write the prune plan");
}

struct IndexBytes {
  std::vector<std::byte> bytes;
  uint64_t payload_xxh3 = 0;
};

IndexBytes encode_whole(const PackIndex& index) {
  const std::vector<std::byte> content = encode_content(index.content);
  return {encode_index(content, index.provenance, {}, {}), xxh3(content)};
}

// Bytes between extents must be zero, and no hash proves what an earlier program left there.
void clear_gaps(const PackWriter& writer, const PackFrame& frame, const PackIndex& index) {
  const std::vector<std::byte> zeros(static_cast<size_t>(kExtentAlignment));
  writer.write_at(0, zeros);
  int64_t end = kExtentAlignment;
  for (const PackExtent& item : list_extents(frame, index)) {
    const int64_t gap = item.extent.offset_bytes - end;
    writer.write_at(end, std::span(zeros).first(static_cast<size_t>(gap)));
    end = item.extent.end_bytes();
  }
}

struct Outcome {
  int64_t file_bytes = 0;
  MemoryPlan memory;
  EncodeSummary encoded;
  std::optional<uint64_t> payload_xxh3;  // empty for a dry run: no byte was encoded
};

void write_notes(const PassResults& results, JsonWriter& json) {
  json.key("notes");
  json.begin_array();
  for (const std::string& note : results.notes) json.value(note);
  json.end_array();
}

void print_notes(const PassResults& results) {
  for (const std::string& note : results.notes) std::cout << "note: " << note << '\n';
}

void print_outcome(const CompileRequest& request, const PackIndex& index, const Model& model,
                   const PassResults& results, const Outcome& outcome) {
  const std::vector<ReportRow> rows = summarize(index.content);
  if (request.json) {
    JsonWriter json(std::cout, 2);
    json.begin_object();
    json.key("pack");
    request.output.empty() ? json.null() : json.value(request.output);
    json.member("dry_run", request.dry_run);
    json.member("file_bytes", outcome.file_bytes);
    json.key("payload_xxh3");
    outcome.payload_xxh3 ? json.value(hex_digits(*outcome.payload_xxh3)) : json.null();
    json.member("workers", outcome.memory.workers);
    json.member("memory_bytes", outcome.memory.total_bytes());
    json.member("resumed_bytes", outcome.encoded.resumed_bytes);
    json.key("rows");
    write_rows(rows, json);
    json.key("memory_to_run");
    write_memory(memory_need(index.content), json);
    json.key("dropped");
    json.begin_array();
    for (const Dropped& dropped : model.dropped) {
      json.begin_object();
      json.member("family", family_name(dropped.family));
      json.member("tensors", dropped.tensors);
      json.member("parameters", dropped.parameters);
      json.member("bytes", dropped.bytes);
      json.end_object();
    }
    json.end_array();
    write_notes(results, json);
    json.end_object();
    std::cout << '\n';
    return;
  }
  print_table(rows, std::cout);
  print_notes(results);
  for (const Dropped& dropped : model.dropped) {
    std::cout << "left out: " << family_name(dropped.family) << ", "
              << format_count(dropped.parameters) << " parameters, " << format_count(dropped.bytes)
              << " bytes\n";
  }
  print_memory(memory_need(index.content), std::cout);
  if (request.dry_run) {
    std::cout << "memory: at most " << format_bytes(outcome.memory.total_bytes()) << ": the plan "
              << format_bytes(outcome.memory.plan_bytes) << ", " << outcome.memory.workers
              << " workers with " << format_bytes(outcome.memory.worker_bytes) << " each\n";
  }
  std::cout << (request.output.empty() ? "pack" : request.output) << ": "
            << format_count(outcome.file_bytes) << " bytes";
  if (outcome.payload_xxh3) std::cout << ", payload " << hex_digits(*outcome.payload_xxh3);
  std::cout << (request.dry_run ? " would be written\n" : "\n");
}

void report_resumed(const PackWriter& writer, const EncodeSummary& encoded, Progress& progress) {
  if (!writer.continues()) return;
  progress.line("resume: " + format_count(encoded.resumed_extents) + " extents, " +
                format_bytes(encoded.resumed_bytes) + ", were there; " +
                format_count(encoded.damaged_extents) + " were damaged and encoded again");
}

// A prediction of --trunk auto is about the bytes that were measured; whoever compiles others (with
// or without calibration, say) is told.
void note_other_extents(const Model& model, PassResults& results) {
  const auto other = std::count_if(
      results.measured_extents.begin(), results.measured_extents.end(), [&](const auto& measured) {
        return model.trunk[measured.first].extent.xxh3 != measured.second;
      });
  if (other == 0) return;
  results.notes.push_back("warning: " + std::to_string(other) + " of " +
                          std::to_string(results.measured_extents.size()) +
                          " matrices came out other than those whose sensitivity was measured: the "
                          "predicted KL is not theirs");
}

// --stop-after: the table, the numbers and the decisions so far.
void print_plan(const CompileRequest& request, const PackIndex& index, const PassResults& results) {
  const std::vector<ReportRow> rows = summarize(index.content);
  if (!request.json) {
    print_table(rows, std::cout);
    print_notes(results);
    for (const PassRecord& pass : results.passes) {
      for (const auto& [name, value] : pass.numbers) {
        std::cout << pass.name << ": " << name << ": " << format_count(static_cast<int64_t>(value))
                  << '\n';
      }
    }
    std::cout << format_decisions(results.decisions);
    return;
  }
  JsonWriter json(std::cout, 2);
  json.begin_object();
  json.member("stopped_after", request.stop_after);
  json.key("rows");
  write_rows(rows, json);
  write_notes(results, json);
  json.key("passes");
  json.begin_object();
  for (const PassRecord& pass : results.passes) {
    json.key(pass.name);
    json.begin_object();
    for (const auto& [name, value] : pass.numbers) json.member(name, value);
    json.end_object();
  }
  json.end_object();
  json.key("decisions");
  json.begin_array();
  for (const Decision& decision : results.decisions) {
    json.begin_object();
    json.member("subject", decision.subject);
    json.member("pass", decision.pass);
    json.member("choice", decision.choice);
    json.member("reason", decision.reason);
    json.member("number", decision.number);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  std::cout << '\n';
}

}  // namespace

void run_compile(const CompileRequest& request) {
  std::optional<tbb::global_control> limit;
  if (request.threads > 0) {
    limit.emplace(tbb::global_control::max_allowed_parallelism,
                  static_cast<size_t>(request.threads));
  }
  Progress progress(Progress::style_for_stderr(request.quiet));

  Model model = import_model(Checkpoint(request.checkpoint));
  check_output_apart(request.output, model);
  std::optional<SolutionStore> solutions;
  if (!request.options.ternary_trunk.calibration.empty() && !request.dry_run &&
      request.stop_after.empty()) {
    solutions.emplace(request.output + ".work");
  }
  const SolutionStore* const kept = solutions ? &*solutions : nullptr;
  PassResults results = run_pipeline(model, request.options, progress, request.stop_after, kept);
  if (!request.plan_out.empty()) write_plan(results.plan, request.plan_out);
  if (!request.stop_after.empty()) {
    print_plan(request, planned_index(model, results, request.options), results);
    return;
  }

  // The index with zero hashes has the length of the finished one (pack_encode.h).
  PackIndex index = planned_index(model, results, request.options);
  const IndexBytes planned = encode_whole(index);
  PackFrame frame;
  frame.index.offset_bytes = align_up(results.data_end_bytes, kExtentAlignment);
  frame.index.length_bytes = static_cast<int64_t>(planned.bytes.size());
  frame.file_bytes = frame.index.end_bytes();
  frame.features = demanded_features(model.config);
  check_index(frame, index, request.checkpoint + ": as planned");
  const MemoryPlan memory =
      plan_memory(encode_worker_bytes(model),
                  request.threads > 0 ? request.threads : tbb::this_task_arena::max_concurrency(),
                  request.memory_bytes);
  if (request.dry_run) {
    print_outcome(request, index, model, results, {frame.file_bytes, memory, {}, std::nullopt});
    return;
  }

  check_free_space(request.output, frame.file_bytes);
  PackWriter writer(request.output, request.resume ? Resume::kYes : Resume::kNo);
  EncodeJournal journal(writer.journal_path(), journal_key(model, results, planned.bytes),
                        encode_items(model), writer.continues());
  writer.reserve(frame.file_bytes);
  if (writer.continues()) clear_gaps(writer, frame, index);
  const EncodeSummary encoded =
      encode(model, results, writer, journal, progress, memory.workers, kept);
  report_resumed(writer, encoded, progress);
  check_tuning(model, request.options);
  note_other_extents(model, results);
  index = planned_index(model, results, request.options);
  const IndexBytes finished = encode_whole(index);
  K3_CHECK(static_cast<int64_t>(finished.bytes.size()) == frame.index.length_bytes);
  writer.finish(frame.index.offset_bytes, finished.bytes, frame.features);
  if (solutions && !request.keep_work) solutions->remove();
  print_outcome(request, index, model, results,
                {frame.file_bytes, memory, encoded, finished.payload_xxh3});
}

}  // namespace k3
