#include "compiler/census.h"

#include <array>
#include <filesystem>
#include <iomanip>
#include <string>
#include <string_view>

#include "compiler/checkpoint.h"
#include "compiler/config_fields.h"
#include "compiler/families.h"
#include "compiler/quantities.h"
#include "compiler/remote_address.h"
#include "compiler/remote_checkpoint.h"
#include "passes/census.h"
#include "schema/file.h"
#include "schema/json_writer.h"
#include "schema/printable.h"
#include "schema/safetensors.h"

namespace k3 {
namespace {

struct Row {
  std::string_view name;
  CensusCount count;
};

int64_t count_layers(const ModelConfig& config, AttentionKind kind) {
  int64_t count = 0;
  for (const LayerConfig& layer : config.layers) count += layer.attention == kind ? 1 : 0;
  return count;
}

int64_t residual_blocks(const ModelConfig& config) {
  if (!config.attention_residual_block) return 0;
  return divide_up(std::ssize(config.layers), *config.attention_residual_block);
}

double stored_to_active(const Census& census) {
  return static_cast<double>(census.total.parameters) /
         static_cast<double>(census.active_parameters);
}

void print_row(std::ostream& out, const Row& row) {
  if (row.count.tensors == 0) return;
  out << "  " << std::left << std::setw(20) << row.name << std::right << std::setw(10)
      << grouped(row.count.tensors) << std::setw(20) << grouped(row.count.parameters)
      << std::setw(20) << grouped(row.count.bytes) << std::setw(11)
      << fixed(row.count.bits_per_weight(), 3) << '\n';
}

void print_parts(std::ostream& out, const Census& census) {
  out << "  part                   tensors          parameters               bytes  bits/weight\n";
  for (size_t i = 0; i < census.families.size(); ++i) {
    if (in_trunk(static_cast<Family>(i))) print_row(out, {kFamilyNames[i], census.families[i]});
  }
  print_row(out, {"= trunk", census.trunk});
  for (const Family family :
       {Family::kEmbedding, Family::kHead, Family::kVision, Family::kProjector}) {
    print_row(out, {family_name(family), census.of(family)});
  }
  print_row(out, {"= non-expert", census.non_expert});
  print_row(out, {"routed experts", census.of(Family::kRoutedExperts)});
  print_row(out, {"= total", census.total});
}

void print_token(std::ostream& out, const Model& model, const Census& census) {
  const ModelConfig& config = model.config;
  const TokenBytes& bytes = census.token_bytes;
  out << "One token\n"
      << "  uses   " << grouped(census.active_parameters) << " parameters (head counted, embedding "
      << "not): " << fixed(stored_to_active(census), 2) << " stored for each one used\n"
      << "  reads  " << sized(bytes.total()) << ": trunk " << sized(bytes.trunk)
      << ", routed experts " << sized(bytes.routed_experts) << " (" << config.experts_per_token
      << " of " << config.experts << " in each of " << model.banks.size() << " layers), head "
      << sized(bytes.head) << ", embedding row " << sized(bytes.embedding) << '\n';
}

void print_architecture(std::ostream& out, const Model& model, const Census& census) {
  const ModelConfig& config = model.config;
  out << "Architecture\n"
      << "  layers    " << config.layers.size() << ": " << count_layers(config, AttentionKind::kKda)
      << " KDA, " << count_layers(config, AttentionKind::kMla) << " MLA; "
      << std::ssize(config.layers) - std::ssize(model.banks) << " with a dense FFN, "
      << model.banks.size() << " with experts\n"
      << "            " << layer_letters(config) << "  (K KDA, M MLA; lower case: dense FFN)\n";
  if (config.attention_residual_block) {
    out << "  AttnRes   " << residual_blocks(config) << " blocks of "
        << *config.attention_residual_block << " layers\n";
  }
  out << "  widths    hidden " << grouped(config.hidden_size) << ", dense "
      << grouped(config.dense_intermediate_size) << ", vocabulary " << grouped(config.vocab_size)
      << '\n';
  if (model.banks.empty()) return;
  out << "  experts   " << config.experts << ", " << config.experts_per_token << " a token and "
      << config.shared_experts << " shared; ";
  if (config.latent_size) {
    out << "latent: " << grouped(config.hidden_size) << " -> " << grouped(*config.latent_size);
  } else {
    out << "on the full width " << grouped(config.hidden_size);
  }
  out << ", inner " << grouped(config.expert_intermediate_size) << '\n'
      << "            one has " << grouped(census.one_expert.parameters) << " parameters in "
      << grouped(census.one_expert.bytes) << " bytes, "
      << format_name(model.banks.front().source_format) << '\n';
}

void write_count(JsonWriter& json, std::string_view name, const CensusCount& count) {
  json.key(name);
  json.begin_object();
  json.member("tensors", count.tensors);
  json.member("parameters", count.parameters);
  json.member("bytes", count.bytes);
  json.member("bits_per_weight", count.bits_per_weight());
  json.end_object();
}

void write_architecture(JsonWriter& json, const Model& model) {
  const ModelConfig& config = model.config;
  json.key("architecture");
  json.begin_object();
  json.member("layers", std::ssize(config.layers));
  json.member("layer_map", layer_letters(config));
  json.member("kda_layers", count_layers(config, AttentionKind::kKda));
  json.member("mla_layers", count_layers(config, AttentionKind::kMla));
  json.member("moe_layers", std::ssize(model.banks));
  json.member("attention_residual_blocks", residual_blocks(config));
  json.member("hidden_size", config.hidden_size);
  json.member("latent_size", config.expert_width());
  json.member("expert_intermediate_size", config.expert_intermediate_size);
  json.member("dense_intermediate_size", config.dense_intermediate_size);
  json.member("vocab_size", config.vocab_size);
  json.member("experts", config.experts);
  json.member("experts_per_token", config.experts_per_token);
  json.member("shared_experts", config.shared_experts);
  json.end_object();
}

void write_json(std::ostream& out, const Checkpoint& checkpoint, const Model& model,
                const Census& census) {
  JsonWriter json(out, 2);
  json.begin_object();
  json.member("checkpoint", checkpoint.folder());
  json.member("family", model.family);
  json.member("shards", checkpoint.shard_count());
  write_count(json, "total", census.total);
  write_count(json, "trunk", census.trunk);
  write_count(json, "non_expert", census.non_expert);
  write_count(json, "vision", census.vision);
  write_count(json, "one_expert", census.one_expert);
  json.key("families");
  json.begin_object();
  for (size_t i = 0; i < census.families.size(); ++i) {
    if (census.families[i].tensors > 0) write_count(json, kFamilyNames[i], census.families[i]);
  }
  json.end_object();
  json.member("active_parameters", census.active_parameters);
  json.member("stored_to_active", stored_to_active(census));
  json.key("bytes_per_token");
  json.begin_object();
  json.member("total", census.token_bytes.total());
  json.member("trunk", census.token_bytes.trunk);
  json.member("routed_experts", census.token_bytes.routed_experts);
  json.member("head", census.token_bytes.head);
  json.member("embedding", census.token_bytes.embedding);
  json.end_object();
  write_architecture(json, model);
  json.end_object();
  out << '\n';
}

void write_file_json(std::ostream& out, const std::string& path, int64_t file_bytes,
                     const SafetensorsHeader& header) {
  JsonWriter json(out, 2);
  json.begin_object();
  json.member("file", path);
  json.member("bytes", file_bytes);
  json.member("data_offset_bytes", header.data_offset_bytes());
  json.key("metadata");
  json.begin_object();
  for (const auto& [name, text] : header.metadata()) json.member(name, std::string_view(text));
  json.end_object();
  json.key("tensors");
  json.begin_array();
  for (int64_t i = 0; i < header.tensors(); ++i) {
    json.begin_object();
    json.member("name", header.name(i));
    json.member("dtype", dtype_name(header.dtype(i)));
    json.key("shape");
    json.begin_array();
    for (const int64_t dim : header.shape(i).dims()) json.value(dim);
    json.end_array();
    json.member("offset_bytes", header.offset_bytes(i));
    json.member("length_bytes", header.length_bytes(i));
    json.end_object();
  }
  json.end_array();
  json.end_object();
  out << '\n';
}

void print_file(std::ostream& out, const std::string& path, int64_t file_bytes,
                const SafetensorsHeader& header) {
  for (int64_t i = 0; i < header.tensors(); ++i) {
    out << printable(header.name(i)) << "  " << dtype_name(header.dtype(i)) << ' '
        << header.shape(i) << "  " << grouped(header.length_bytes(i)) << " bytes at "
        << grouped(header.offset_bytes(i)) << '\n';
  }
  std::array<CensusCount, kDtypes.size()> by_dtype;
  for (int64_t i = 0; i < header.tensors(); ++i) {
    by_dtype[static_cast<size_t>(header.dtype(i))] +=
        {1, header.shape(i).elements().value_or(0), header.length_bytes(i)};
  }
  out << path << ": " << grouped(header.tensors()) << " tensors, " << grouped(file_bytes)
      << " bytes, " << grouped(header.data_offset_bytes()) << " of them header\n";
  for (const DtypeRow& row : kDtypes) {
    const CensusCount& count = by_dtype[static_cast<size_t>(row.dtype)];
    if (count.tensors == 0) continue;
    out << "  " << std::left << std::setw(8) << row.name << std::right << grouped(count.tensors)
        << " tensors, " << grouped(count.parameters) << " elements, " << grouped(count.bytes)
        << " bytes\n";
  }
}

}  // namespace

void run_census(const CensusOptions& options, std::ostream& out) {
  const bool remote = is_url(options.path);
  const RemoteOptions remote_options = remote_options_from_environment();
  const auto write_file = options.json ? write_file_json : print_file;
  if (remote && is_shard_url(options.path)) {
    const RemoteShard shard = read_remote_shard(options.path, remote_options);
    return write_file(out, shard.url, shard.file_bytes, shard.header);
  }
  if (!remote && std::filesystem::is_regular_file(options.path)) {
    const File file(options.path);
    return write_file(out, file.path(), file.size_bytes(), read_safetensors_header(file));
  }
  const Checkpoint checkpoint =
      remote ? open_remote_checkpoint(options.path, remote_options) : Checkpoint(options.path);
  const Model model = import_model(checkpoint);
  const Census census = take_census(model);
  if (options.json) return write_json(out, checkpoint, model, census);
  out << checkpoint.folder() << ": " << model.family << ", " << grouped(census.total.tensors)
      << " tensors in " << checkpoint.shard_count() << " shards, " << sized(census.total.bytes)
      << "\n";
  print_parts(out, census);
  print_token(out, model, census);
  print_architecture(out, model, census);
}

}  // namespace k3
