// assign_offsets: the place of every extent, in the order in which a runtime wants them: the trunk,
// which every token reads, in model order; the banks layer by layer; cold experts, likewise, so
// that they lie between nothing that is read together; then what is read once or never, side files
// and reports.
//
// Every size is known here before a byte is encoded: weights by format and layout, side files and
// text reports because they are compressed now, and source hashes because they are eight bytes
// each and stored raw.
#include <array>

#include "passes/pass.h"
#include "passes/planned_extent.h"
#include "schema/zstd.h"

namespace k3 {
namespace {

// One line per tensor read: its name in the checkpoint, its shard, offset and length there.
std::string format_sources(const Model& model) {
  std::vector<std::string> shards;
  for (const auto& shard : model.shards) {
    shards.push_back(shard->path().substr(shard->path().rfind('/') + 1));
  }
  std::string text = "tensor\tshard\toffset\tbytes\n";
  const auto add = [&](const std::string& name, const Source& source) {
    text += model.source_prefix + name;
    text += '\t';
    text += shards[static_cast<size_t>(source.shard)];
    text += '\t';
    text += std::to_string(source.offset_bytes);
    text += '\t';
    text += std::to_string(source.length_bytes);
    text += '\n';
  };
  for (const TrunkTensor& tensor : model.trunk) add(tensor.name, tensor.source);

  constexpr std::array<const char*, 6> kPacked = {"w1.weight_packed", "w1.weight_scale",
                                                  "w2.weight_packed", "w2.weight_scale",
                                                  "w3.weight_packed", "w3.weight_scale"};
  constexpr std::array<const char*, 3> kPlain = {"w1.weight", "w2.weight", "w3.weight"};
  for (const Bank& bank : model.banks) {
    const std::string layer =
        "model.layers." + std::to_string(bank.layer) + ".block_sparse_moe.experts.";
    for (const Expert& expert : bank.experts) {
      const std::string prefix = layer + std::to_string(expert.source_id) + ".";
      if (bank.source_format == Format::kMxfp4) {
        for (size_t i = 0; i < kPacked.size(); ++i) add(prefix + kPacked[i], expert.sources[i]);
      } else {
        for (size_t i = 0; i < kPlain.size(); ++i) add(prefix + kPlain[i], expert.sources[i]);
      }
    }
  }
  return text;
}

// Text that zstd does not shorten is stored raw: equal sizes say so to the reader.
PlannedReport compress_report(const char* name, const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  PlannedReport report{name, compress_zstd(raw), static_cast<int64_t>(raw.size()), {}};
  if (report.stored.size() >= raw.size()) report.stored.assign(raw.begin(), raw.end());
  return report;
}

}  // namespace

void assign_offsets(Model& model, PassContext& context) {
  int64_t next = kExtentAlignment;
  int64_t padding = 0;
  const auto place = [&](Extent& extent, int64_t bytes) {
    extent = {next, bytes, 0};
    next = align_up(extent.end_bytes(), kExtentAlignment);
    padding += next - extent.end_bytes();
    context.results.data_end_bytes = extent.end_bytes();
  };

  int64_t source_hashes = 0;
  for (TrunkTensor& tensor : model.trunk) {
    place(tensor.extent, planned_bytes(tensor));
    ++source_hashes;
  }
  for (const bool cold : {false, true}) {
    for (Bank& bank : model.banks) {
      const int64_t bytes = bank_bands(model.config, bank).extent_bytes();
      for (Expert& expert : bank.experts) {
        if (expert.cold != cold) continue;
        place(expert.extent, bytes);
        ++source_hashes;
      }
    }
  }
  for (SideFile& file : model.side_files) {
    file.compressed = compress_zstd(file.bytes);
    place(file.extent, static_cast<int64_t>(file.compressed.size()));
  }

  const int64_t hash_bytes = 8 * source_hashes;
  context.results.reports = {
      compress_report(kDecisionsReport, format_decisions(context.results.decisions)),
      compress_report(kSourcesReport, format_sources(model))};
  if (!context.results.losses.empty()) {
    context.results.reports.push_back(
        compress_report(kTrunkErrorsReport, format_losses(context.results.losses)));
  }
  context.results.reports.push_back({kSourceHashesReport,
                                     std::vector<std::byte>(static_cast<size_t>(hash_bytes)),
                                     hash_bytes,
                                     {}});
  for (PlannedReport& report : context.results.reports) {
    place(report.extent, static_cast<int64_t>(report.stored.size()));
  }
  context.record("data bytes", static_cast<double>(context.results.data_end_bytes));
  context.record("padding bytes", static_cast<double>(padding));
}

}  // namespace k3
