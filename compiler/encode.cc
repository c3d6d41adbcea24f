// Extents are independent, so each worker takes the next one from a common counter until none is
// left. A counter, not a divided range: then all workers read near each other and the shards go by
// front to back once, which disks and the page cache both like. Peak memory is two experts or a few
// megabytes of rows per worker, whatever the model's size.
#include "compiler/encode.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <vector>

#include "compiler/encode_expert.h"
#include "compiler/encode_trunk.h"
#include "compiler/fixed_point.h"
#include "passes/planned_extent.h"
#include "schema/error.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

// Where the sources of a matrix stand in Expert::sources, by ExpertMatrix: the checkpoint has w2
// before w3.
constexpr std::array<size_t, 3> kSourceOrder = {0, 2, 1};

// One worker's buffers, grown once and used for every expert it encodes.
struct ExpertBuffers {
  std::vector<std::byte> source;
  std::vector<std::byte> extent;
};

std::string expert_subject(const Model& model, const Bank& bank, const Expert& expert) {
  return model.shards[static_cast<size_t>(expert.sources[0].shard)]->path() + ": layer " +
         std::to_string(bank.layer) + ": expert " + std::to_string(expert.source_id);
}

// Which of an expert's sources holds the codes of a matrix; the scales of mxfp4 follow them.
size_t codes_source(Format format, ExpertMatrix matrix) {
  const size_t place = kSourceOrder[static_cast<size_t>(matrix)];
  return format == Format::kMxfp4 ? 2 * place : place;
}

void check_source(const Source& source, int64_t expected_bytes, const std::string& subject) {
  if (source.length_bytes != expected_bytes) {
    throw Error(subject, ": a tensor has ", source.length_bytes, " bytes, expected ",
                expected_bytes);
  }
}

// `bytes` are w2's scales, or its weights where there are none.
double w2_row_bound(const ExpertBands& place, std::span<const std::byte> bytes,
                    const std::string& subject) {
  if (place.format == Format::kMxfp4) return row_bound_mxfp4(bytes, place.latent);
  const double bound = row_bound_bf16(bytes, place.latent);
  if (!std::isfinite(bound)) {
    throw Error(subject, ".w2: has a weight that is NaN or infinite, expected finite weights");
  }
  return bound;
}

// Reads the six (three) tensors in order, moves them into bands, writes the extent. Returns the
// bound on w2's row sums.
double encode_expert(const Model& model, const Bank& bank, Expert& expert, const PackWriter& writer,
                     ExpertBuffers& buffers) {
  const ExpertBands place = bank_bands(model.config, bank);
  const std::string subject = expert_subject(model, bank, expert);
  int64_t source_bytes = 0;
  for (const Source& source : expert.sources) source_bytes += source.length_bytes;
  buffers.source.resize(static_cast<size_t>(source_bytes));

  std::array<std::span<std::byte>, 6> pieces;
  std::span<std::byte> left = buffers.source;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Source& source = expert.sources[i];
    pieces[i] = left.first(static_cast<size_t>(source.length_bytes));
    left = left.subspan(pieces[i].size());
    if (source.length_bytes == 0) continue;
    model.shards[static_cast<size_t>(source.shard)]->read_at(source.offset_bytes, pieces[i]);
  }
  expert.source_xxh3 = xxh3(buffers.source);

  ExpertSources matrices;
  for (const ExpertMatrix matrix : {ExpertMatrix::kW1, ExpertMatrix::kW3, ExpertMatrix::kW2}) {
    const ExpertSourceBytes want = expert_source_bytes(place, matrix);
    const size_t codes = codes_source(bank.format, matrix);
    check_source(expert.sources[codes], want.codes, subject);
    ExpertSource& to = matrices[static_cast<size_t>(matrix)];
    to.codes = pieces[codes];
    if (bank.format != Format::kMxfp4) continue;
    check_source(expert.sources[codes + 1], want.scales, subject);
    to.scales = pieces[codes + 1];
  }
  expert.least_exponent = least_exponents(place, matrices, subject);

  buffers.extent.resize(static_cast<size_t>(place.extent_bytes()));
  permute_into_bands(place, matrices, buffers.extent);
  ExtentStream extent(writer, expert.extent);
  extent.write(buffers.extent);
  expert.extent.xxh3 = extent.finish();

  const ExpertSource& w2 = matrices[static_cast<size_t>(ExpertMatrix::kW2)];
  return w2_row_bound(place, bank.format == Format::kMxfp4 ? w2.scales : w2.codes, subject);
}

// The same bound for an expert that the pack leaves out: only what it takes is read.
double bound_left_out(const Model& model, const Bank& bank, const Expert& expert,
                      ExpertBuffers& buffers) {
  const ExpertBands place = bank_bands(model.config, bank);
  const std::string subject = expert_subject(model, bank, expert);
  const ExpertSourceBytes want = expert_source_bytes(place, ExpertMatrix::kW2);
  const size_t codes = codes_source(bank.format, ExpertMatrix::kW2);
  const bool packed = bank.format == Format::kMxfp4;
  const Source& source = expert.sources[packed ? codes + 1 : codes];
  check_source(source, packed ? want.scales : want.codes, subject);
  buffers.source.resize(static_cast<size_t>(source.length_bytes));
  model.shards[static_cast<size_t>(source.shard)]->read_at(source.offset_bytes, buffers.source);
  if (packed && std::find(buffers.source.begin(), buffers.source.end(),
                          std::byte{kMxfp4NanScale}) != buffers.source.end()) {
    throw Error(subject, ".w2: has a scale of 255 (NaN), expected at most 254");
  }
  return w2_row_bound(place, buffers.source, subject);
}

// One entry of the common list of work: a trunk tensor, or an expert of a bank, kept or left out.
struct WorkItem {
  enum class Kind : uint8_t { kTrunk, kExpert, kLeftOut } kind;
  size_t index;
  size_t bank;
};

std::vector<WorkItem> list_work(const Model& model) {
  std::vector<WorkItem> work;
  for (size_t i = 0; i < model.trunk.size(); ++i) work.push_back({WorkItem::Kind::kTrunk, i, 0});
  for (size_t bank = 0; bank < model.banks.size(); ++bank) {
    for (size_t i = 0; i < model.banks[bank].experts.size(); ++i) {
      work.push_back({WorkItem::Kind::kExpert, i, bank});
    }
    for (size_t i = 0; i < model.banks[bank].left_out.size(); ++i) {
      work.push_back({WorkItem::Kind::kLeftOut, i, bank});
    }
  }
  return work;
}

int64_t source_bytes(const Model& model) {
  int64_t bytes = 0;
  for (const TrunkTensor& tensor : model.trunk) bytes += tensor.source.length_bytes;
  for (const Bank& bank : model.banks) {
    for (const Expert& expert : bank.experts) {
      for (const Source& source : expert.sources) bytes += source.length_bytes;
    }
  }
  return bytes;
}

void write_small(const PackWriter& writer, Extent& extent, std::span<const std::byte> bytes) {
  ExtentStream stream(writer, extent);
  stream.write(bytes);
  extent.xxh3 = stream.finish();
}

// Eight bytes per trunk tensor in order, then per expert in bank order.
void fill_source_hashes(const Model& model, std::span<std::byte> stored) {
  size_t next = 0;
  const auto put = [&](uint64_t hash) {
    store_little_endian(hash, &stored[next]);
    next += sizeof(hash);
  };
  for (const TrunkTensor& tensor : model.trunk) put(tensor.source_xxh3);
  for (const Bank& bank : model.banks) {
    for (const Expert& expert : bank.experts) put(expert.source_xxh3);
  }
  K3_CHECK(next == stored.size());
}

}  // namespace

void encode(Model& model, PassResults& results, const PackWriter& writer, Progress& progress) {
  progress.start("encode", source_bytes(model));
  const std::vector<WorkItem> work = list_work(model);
  std::vector<double> row_bounds(work.size());
  std::atomic<size_t> next = 0;
  const std::function<void(int64_t)> on_read = [&](int64_t bytes) { progress.advance(bytes); };

  tbb::parallel_for(0, tbb::this_task_arena::max_concurrency(), [&](int) {
    ExpertBuffers buffers;
    for (size_t i = next++; i < work.size(); i = next++) {
      if (tbb::is_current_task_group_canceling()) return;  // another worker met a fault
      const WorkItem& item = work[i];
      if (item.kind == WorkItem::Kind::kTrunk) {
        TrunkTensor& tensor = model.trunk[item.index];
        const File& shard = *model.shards[static_cast<size_t>(tensor.source.shard)];
        const EncodedHashes hashes = encode_trunk_tensor(tensor, shard, writer, on_read);
        tensor.extent.xxh3 = hashes.extent;
        tensor.source_xxh3 = hashes.source;
        continue;
      }
      Bank& bank = model.banks[item.bank];
      if (item.kind == WorkItem::Kind::kExpert) {
        row_bounds[i] = encode_expert(model, bank, bank.experts[item.index], writer, buffers);
        on_read(static_cast<int64_t>(buffers.source.size()));
      } else {
        row_bounds[i] = bound_left_out(model, bank, bank.left_out[item.index], buffers);
      }
    }
  });

  std::vector<double> bank_bounds(model.banks.size());
  for (size_t i = 0; i < work.size(); ++i) {
    if (work[i].kind == WorkItem::Kind::kTrunk) continue;
    double& bound = bank_bounds[work[i].bank];
    bound = std::max(bound, row_bounds[i]);
  }
  for (size_t bank = 0; bank < model.banks.size(); ++bank) {
    model.banks[bank].fixed_point = fixed_point_for(model.config, bank_bounds[bank]);
  }

  for (SideFile& file : model.side_files) write_small(writer, file.extent, file.compressed);
  for (PlannedReport& report : results.reports) {
    if (report.name == kSourceHashesReport) fill_source_hashes(model, report.stored);
    write_small(writer, report.extent, report.stored);
  }
  progress.finish();
}

}  // namespace k3
