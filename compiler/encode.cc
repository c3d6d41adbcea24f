// Extents are independent, so each worker takes the next one from a common counter until none is
// left. A counter, not a divided range: then all workers read near each other and the shards go by
// front to back once, which disks and the page cache both like. Peak memory is an expert and a
// band, or a few megabytes of rows, per worker, whatever the model's size.
//
// Each finished item goes into the journal. An item that an earlier program's journal claims is
// read back and hashed; if the hash is the claimed one the item is done, else it is encoded as if
// nothing had been claimed. So it never matters in which order a killed program's bytes reached the
// disk.
#include "compiler/encode.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "compiler/encode_bank.h"
#include "compiler/encode_trunk.h"
#include "compiler/fixed_point.h"
#include "schema/aligned_bytes.h"
#include "schema/error.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

constexpr int64_t kReadBackBytes = int64_t{1} << 20;

// One entry of the common list of work: a trunk tensor, or an expert of a bank, kept or left out.
struct WorkItem {
  enum class Kind : uint8_t { kTrunk, kExpert, kLeftOut } kind;
  size_t index;
  size_t bank;
};

// What a worker brings along. Whatever it reads goes through the one buffer.
struct Worker {
  AlignedBytes buffer;
  ExpertEncoder experts;

  Worker(const Model& model, const PackWriter& writer) : experts(model, writer, buffer) {}
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
    for (const Expert& expert : bank.experts) bytes += expert_source_bytes(expert);
  }
  return bytes;
}

class Encoding {
 public:
  Encoding(Model& model, const PackWriter& writer, EncodeJournal& journal, Progress& progress,
           const SolutionStore* solutions)
      : model_(model),
        writer_(writer),
        solutions_(solutions),
        journal_(journal),
        progress_(progress),
        work_(list_work(model)),
        row_bounds_(work_.size()) {
    if (writer.continues() && journal.claims() > 0) earlier_.emplace(writer.unfinished_path());
  }

  EncodeSummary run(int64_t workers) {
    std::atomic<size_t> next = 0;
    tbb::task_arena arena(static_cast<int>(workers));
    arena.execute([&] {
      tbb::parallel_for(int64_t{0}, workers, [&](int64_t) {
        Worker worker(model_, writer_);
        for (size_t i = next++; i < work_.size(); i = next++) {
          if (tbb::is_current_task_group_canceling()) return;  // another worker met a fault
          finish(i, worker);
        }
      });
    });
    return {resumed_extents_, resumed_bytes_, damaged_extents_};
  }

  // Call after run(). The largest of each bank.
  std::vector<double> bank_bounds() const {
    std::vector<double> bounds(model_.banks.size());
    for (size_t i = 0; i < work_.size(); ++i) {
      if (work_[i].kind == WorkItem::Kind::kTrunk) continue;
      double& bound = bounds[work_[i].bank];
      bound = std::max(bound, row_bounds_[i]);
    }
    return bounds;
  }

 private:
  void finish(size_t i, Worker& worker) {
    const WorkItem& item = work_[i];
    if (earlier_ && journal_.claim(i) && is_true(item, *journal_.claim(i), worker)) {
      adopt(i, *journal_.claim(i));
      return;
    }
    const EncodedItem encoded = encode(item, worker);
    adopt(i, encoded);
    journal_.add(i, encoded);
  }

  EncodedItem encode(const WorkItem& item, Worker& worker) {
    if (item.kind == WorkItem::Kind::kTrunk) {
      const EncodedHashes hashes =
          encode_trunk_tensor(model_, model_.trunk[item.index], writer_, worker.buffer, solutions_,
                              [&](int64_t bytes) { progress_.advance(bytes); });
      return {.extent_xxh3 = hashes.extent,
              .source_xxh3 = hashes.source,
              .untuned_xxh3 = hashes.untuned};
    }
    const Bank& bank = model_.banks[item.bank];
    if (item.kind == WorkItem::Kind::kLeftOut) {
      return {.row_bound = worker.experts.bound_left_out(bank, bank.left_out[item.index])};
    }
    const Expert& expert = bank.experts[item.index];
    const EncodedItem encoded = worker.experts.encode(bank, expert);
    progress_.advance(expert_source_bytes(expert));
    return encoded;
  }

  void adopt(size_t i, const EncodedItem& encoded) {
    const WorkItem& item = work_[i];
    row_bounds_[i] = encoded.row_bound;
    if (item.kind == WorkItem::Kind::kTrunk) {
      model_.trunk[item.index].extent.xxh3 = encoded.extent_xxh3;
      model_.trunk[item.index].source_xxh3 = encoded.source_xxh3;
      model_.trunk[item.index].untuned_xxh3 = encoded.untuned_xxh3;
    } else if (item.kind == WorkItem::Kind::kExpert) {
      Expert& expert = model_.banks[item.bank].experts[item.index];
      expert.extent.xxh3 = encoded.extent_xxh3;
      expert.source_xxh3 = encoded.source_xxh3;
      expert.least_exponent = encoded.least_exponent;
    }
  }

  // Whether the bytes that the claim speaks of are there.
  bool is_true(const WorkItem& item, const EncodedItem& claim, Worker& worker) {
    if (item.kind == WorkItem::Kind::kLeftOut) return true;  // it has none
    const bool is_trunk = item.kind == WorkItem::Kind::kTrunk;
    const Extent& extent = is_trunk ? model_.trunk[item.index].extent
                                    : model_.banks[item.bank].experts[item.index].extent;
    Xxh3Stream hash;
    for (int64_t at = extent.offset_bytes; at < extent.end_bytes(); at += kReadBackBytes) {
      read_hashed(*earlier_, at,
                  worker.buffer.room_for(std::min(kReadBackBytes, extent.end_bytes() - at)), hash);
    }
    if (hash.digest() != claim.extent_xxh3) {
      ++damaged_extents_;
      return false;
    }
    ++resumed_extents_;
    resumed_bytes_ += extent.length_bytes;
    progress_.advance(is_trunk ? model_.trunk[item.index].source.length_bytes
                               : expert_source_bytes(model_.banks[item.bank].experts[item.index]));
    return true;
  }

  Model& model_;
  const PackWriter& writer_;
  const SolutionStore* solutions_;
  EncodeJournal& journal_;
  Progress& progress_;
  std::vector<WorkItem> work_;
  std::vector<double> row_bounds_;
  std::optional<File> earlier_;  // the unfinished pack as the killed program left it
  std::atomic<int64_t> resumed_extents_ = 0;
  std::atomic<int64_t> resumed_bytes_ = 0;
  std::atomic<int64_t> damaged_extents_ = 0;
};

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

size_t encode_items(const Model& model) {
  return list_work(model).size();
}

int64_t encode_worker_bytes(const Model& model) {
  int64_t most = std::max(kReadBackBytes, ExpertEncoder::buffer_bytes(model));
  for (const TrunkTensor& tensor : model.trunk) {
    most = std::max(most, trunk_buffer_bytes(tensor));
  }
  return most;
}

EncodeSummary encode(Model& model, PassResults& results, const PackWriter& writer,
                     EncodeJournal& journal, Progress& progress, int64_t workers,
                     const SolutionStore* solutions) {
  progress.start("encode", source_bytes(model));
  Encoding encoding(model, writer, journal, progress, solutions);
  const EncodeSummary summary = encoding.run(workers);
  const std::vector<double> bank_bounds = encoding.bank_bounds();
  for (size_t bank = 0; bank < model.banks.size(); ++bank) {
    model.banks[bank].fixed_point = fixed_point_for(model.config, bank_bounds[bank]);
  }

  for (SideFile& file : model.side_files) write_small(writer, file.extent, file.compressed);
  for (PlannedReport& report : results.reports) {
    if (report.name == kSourceHashesReport) fill_source_hashes(model, report.stored);
    write_small(writer, report.extent, report.stored);
  }
  progress.finish();
  return summary;
}

}  // namespace k3
