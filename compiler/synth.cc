// The checkpoint is made in a neighbour of its folder and renamed into place, so that what carries
// its name is whole. A neighbour that is there already belongs to a run that was killed or is at
// work; it is never removed by a program that cannot tell which.
#include "compiler/synth.h"

#include <sys/stat.h>
#include <tbb/global_control.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "compiler/quantities.h"
#include "compiler/synth_config.h"
#include "compiler/synth_files.h"
#include "compiler/synth_presets.h"
#include "compiler/synth_tensors.h"
#include "compiler/synth_tokenizer.h"
#include "passes/progress.h"
#include "schema/error.h"
#include "schema/json_writer.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;

// A folder under another name until finish(); gone if that is never reached.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(fs::path final_path) : final_path_(std::move(final_path)) {
    path_ = final_path_;
    path_ += ".unfinished";
    if (::mkdir(path_.c_str(), 0777) == 0) return;
    if (errno == EEXIST) {
      throw Error(path_.string(),
                  ": is there, from a run that was killed or is still at work; remove it if not");
    }
    throw Error(path_.string(), ": cannot create: ", std::strerror(errno));
  }
  ~UnfinishedFolder() {
    std::error_code ignored;
    if (!finished_) fs::remove_all(path_, ignored);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  std::string path() const { return path_.string(); }

  void finish() {
    std::error_code error;
    fs::rename(path_, final_path_, error);  // replaces an empty folder, nothing else
    if (error) throw Error(final_path_.string(), ": cannot put in place: ", error.message());
    finished_ = true;
  }

 private:
  fs::path final_path_;
  fs::path path_;
  bool finished_ = false;
};

// The path without a slash at its end.
fs::path checked_output(const std::string& out) {
  if (out.empty()) throw Error("output folder: has no name");
  fs::path path(out);
  if (!path.has_filename()) path = path.parent_path();
  const fs::file_status status = fs::status(path);
  if (!fs::exists(status)) return path;
  if (!fs::is_directory(status)) throw Error(out, ": is not a folder, it stays as it is");
  if (!fs::is_empty(path)) throw Error(out, ": is not empty, it stays as it is");
  return path;
}

void write_side_files(const std::string& folder, const SynthPreset& preset, uint64_t seed) {
  write_text_file(folder + "/config.json", synth_config_json(preset));
  write_text_file(folder + "/generation_config.json", synth_generation_config_json(preset));
  write_text_file(folder + "/tiktoken.model", synth_tiktoken_model(preset, seed));
  write_text_file(folder + "/tokenizer_config.json", synth_tokenizer_config_json(preset));
}

void print_summary(std::ostream& out, const SynthOptions& options, const SynthPreset& preset,
                   const SynthShards& shards) {
  const auto layers = static_cast<int64_t>(preset.config.layers.size());
  if (!options.json) {
    out << options.out << ": " << preset.name << ", " << layers << " layers, "
        << grouped(shards.total_tensors()) << " tensors, " << sized(shards.total_bytes()) << " in "
        << shards.count() << " shards" << (options.headers_only ? ", headers only" : "") << '\n';
    return;
  }
  JsonWriter json(out, 2);
  json.begin_object();
  json.member("checkpoint", options.out);
  json.member("preset", preset.name);
  json.member("seed", options.seed);
  json.member("headers_only", options.headers_only);
  json.member("layers", layers);
  json.member("tensors", shards.total_tensors());
  json.member("bytes", shards.total_bytes());
  json.member("shards", shards.count());
  json.end_object();
  out << '\n';
}

SynthPreset chosen_preset(const SynthOptions& options) {
  SynthPreset preset = find_synth_preset(options.preset);
  if (options.layers) preset = with_layers(preset, *options.layers);
  if (!options.layer_map.empty()) preset = with_layer_map(preset, options.layer_map);
  if (options.experts) preset = with_experts(preset, *options.experts);
  if (options.vocabulary) preset = with_vocabulary(preset, *options.vocabulary);
  return preset;
}

}  // namespace

void run_synth(const SynthOptions& options, std::ostream& out) {
  std::optional<tbb::global_control> limit;
  if (options.threads > 0) {
    limit.emplace(tbb::global_control::max_allowed_parallelism,
                  static_cast<size_t>(options.threads));
  }
  const SynthPreset preset = chosen_preset(options);
  const fs::path path = checked_output(options.out);
  const SynthShards shards(preset);
  if (!options.headers_only) check_disk_space(path.string(), shards.total_bytes());

  Progress progress(Progress::style_for_stderr(options.quiet));
  UnfinishedFolder folder(path);
  write_synth_shards(folder.path(), shards, options.seed, options.headers_only, progress);
  write_synth_index(folder.path(), shards);
  write_side_files(folder.path(), preset, options.seed);
  folder.finish();
  print_summary(out, options, preset, shards);
}

}  // namespace k3
