#include "compiler/inspect.h"

#include <iostream>

#include "compiler/loss_report.h"
#include "compiler/quantities.h"
#include "compiler/receipt_table.h"
#include "compiler/report.h"
#include "schema/hash.h"
#include "schema/json_writer.h"
#include "schema/pack_reader.h"

namespace k3 {
namespace {

void print_rotation(const RotatedBasis& basis) {
  std::cout << "rotation: seed " << basis.seed << ", blocks: stream " << basis.stream_block
            << ", query rank " << basis.query_block << "; online: kda heads " << basis.kda_block
            << ", mla heads " << basis.mla_block << ", dense " << basis.dense_block << ", shared "
            << basis.shared_block << ", latent " << basis.latent_block << '\n';
}

void print_text(const PackReader& pack) {
  const PackIndex& index = pack.index();
  print_table(summarize(index.content), std::cout);
  if (index.content.config.rotation) print_rotation(*index.content.config.rotation);
  print_memory(memory_need(index.content), std::cout);
  for (const PackSideFile& file : index.content.side_files) {
    std::cout << "side file " << file.name << ": " << format_count(file.raw_bytes) << " bytes, "
              << format_count(file.extent.length_bytes) << " stored\n";
  }
  std::cout << "compiled by " << index.provenance.compiler << '\n';
  for (const auto& [name, value] : index.provenance.options) {
    std::cout << "option " << name << ": " << value << '\n';
  }
  for (const PassRecord& pass : index.provenance.passes) {
    for (const auto& [name, value] : pass.numbers) {
      std::cout << "pass " << pass.name << ": " << name << ": " << shortest(value) << '\n';
    }
  }
  for (const PackReport& report : index.provenance.reports) {
    std::cout << "report " << report.name << ": " << format_count(report.raw_bytes) << " bytes, "
              << format_count(report.extent.length_bytes) << " stored\n";
  }
  print_losses(pack, std::cout);
  for (const PackReceipt& receipt : index.receipts) print_receipt(receipt, std::cout);
  std::cout << "index: " << format_count(pack.frame().index.length_bytes) << " bytes, "
            << index.retired.size() << " retired\n"
            << pack.path() << ": " << format_count(pack.file_bytes()) << " bytes, payload "
            << hex_digits(pack.payload_xxh3()) << '\n';
}

void write_rotation(const RotatedBasis& basis, JsonWriter& json) {
  json.begin_object();
  json.member("seed", basis.seed);
  json.member("stream_block", basis.stream_block);
  json.member("query_block", basis.query_block);
  json.member("kda_block", basis.kda_block);
  json.member("mla_block", basis.mla_block);
  json.member("dense_block", basis.dense_block);
  json.member("shared_block", basis.shared_block);
  json.member("latent_block", basis.latent_block);
  json.end_object();
}

void write_config(const ModelConfig& config, JsonWriter& json) {
  json.begin_object();
  json.member("layers", config.layers.size());
  json.member("hidden_size", config.hidden_size);
  json.member("vocab_size", config.vocab_size);
  json.member("experts", config.experts);
  json.member("experts_per_token", config.experts_per_token);
  json.member("expert_width", config.expert_width());
  json.member("expert_intermediate_size", config.expert_intermediate_size);
  json.key("rotation");
  config.rotation ? write_rotation(*config.rotation, json) : json.null();
  json.end_object();
}

void write_banks(const PackContent& content, JsonWriter& json) {
  json.begin_array();
  for (const PackBank& bank : content.banks) {
    json.begin_object();
    json.member("layer", bank.layer);
    json.member("format", format_name(bank.format));
    json.member("experts", bank.experts.size());
    json.member("cold", bank.experts.size() - hot_experts(bank).size());
    json.member("source_experts", bank.source_experts);
    json.member("fixed_point", bank.fixed_point);
    json.end_object();
  }
  json.end_array();
}

void write_provenance(const PackProvenance& provenance, JsonWriter& json) {
  json.begin_object();
  json.member("compiler", provenance.compiler);
  json.key("options");
  json.begin_object();
  for (const auto& [name, value] : provenance.options) json.member(name, value);
  json.end_object();
  json.key("passes");
  json.begin_object();
  for (const PassRecord& pass : provenance.passes) {
    json.key(pass.name);
    json.begin_object();
    for (const auto& [name, value] : pass.numbers) json.member(name, value);
    json.end_object();
  }
  json.end_object();
  json.key("reports");
  json.begin_array();
  for (const PackReport& report : provenance.reports) {
    json.begin_object();
    json.member("name", report.name);
    json.member("bytes", report.raw_bytes);
    json.member("stored_bytes", report.extent.length_bytes);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void print_json(const PackReader& pack) {
  const PackIndex& index = pack.index();
  JsonWriter json(std::cout, 2);
  json.begin_object();
  json.member("pack", pack.path());
  json.member("file_bytes", pack.file_bytes());
  json.member("index_bytes", pack.frame().index.length_bytes);
  json.member("payload_xxh3", hex_digits(pack.payload_xxh3()));
  json.key("config");
  write_config(index.content.config, json);
  json.key("rows");
  write_rows(summarize(index.content), json);
  json.key("memory_to_run");
  write_memory(memory_need(index.content), json);
  json.key("banks");
  write_banks(index.content, json);
  json.key("side_files");
  json.begin_array();
  for (const PackSideFile& file : index.content.side_files) {
    json.begin_object();
    json.member("name", file.name);
    json.member("bytes", file.raw_bytes);
    json.member("stored_bytes", file.extent.length_bytes);
    json.end_object();
  }
  json.end_array();
  json.key("provenance");
  write_provenance(index.provenance, json);
  json.key("trunk_errors");
  write_losses(pack, json);
  json.key("receipts");
  json.begin_array();
  for (const PackReceipt& receipt : index.receipts) {
    json.begin_object();
    json.member("kind", receipt.kind);
    json.member("text", receipt.text);
    json.end_object();
  }
  json.end_array();
  json.member("retired_indexes", index.retired.size());
  json.end_object();
  std::cout << '\n';
}

}  // namespace

void run_inspect(const InspectRequest& request) {
  const PackReader pack(request.pack);
  if (!request.report.empty()) {
    const std::vector<std::byte> content = pack.report(request.report);
    std::cout.write(reinterpret_cast<const char*>(content.data()),
                    static_cast<std::streamsize>(content.size()));
  } else if (request.json) {
    print_json(pack);
  } else {
    print_text(pack);
  }
}

}  // namespace k3
