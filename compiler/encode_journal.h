// What a compile has encoded so far, kept beside the unfinished pack so that a killed one can be
// continued (compile --resume).
//
// A record is a claim: "the bytes of this extent are written and hash to this". Nobody trusts it.
// Whoever continues reads the extent and hashes it before it believes the claim; so no order of
// writes to disk has to be kept, and nothing but time is lost when a record or an extent is
// damaged. What the bytes cannot prove (the hash of the source, a row bound) is covered by the
// record's own checksum and by the journal's key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "passes/model.h"
#include "passes/pass_results.h"
#include "schema/output_file.h"

namespace k3 {

// What a journal's claims hold for.
struct JournalKey {
  uint64_t plan = 0;    // the planned index, reports and side files: options, names, places, sizes
  uint64_t shards = 0;  // name, size and time of last change of each shard

  friend bool operator==(const JournalKey&, const JournalKey&) = default;
};

// `index` is the encoded index as planned, with zeros for hashes.
JournalKey journal_key(const Model& model, const PassResults& results,
                       std::span<const std::byte> index);

// What encoding one item of the plan found out.
struct EncodedItem {
  uint64_t extent_xxh3 = 0;  // 0 for an item without an extent
  uint64_t source_xxh3 = 0;
  uint64_t untuned_xxh3 = 0;  // of a trunk tensor's extent without its tuning
  double row_bound = 0;       // of an expert's w2
  std::array<uint8_t, 3> least_exponent = {};
};

class EncodeJournal {
 public:
  // Starts an empty journal at `path` for a plan of `items` items; or, to continue, reads the one
  // that is there: records that are torn or damaged are dropped, and one whose head is damaged is
  // started anew. Throws Error when it was kept for another key.
  EncodeJournal(const std::string& path, const JournalKey& key, size_t items, bool continues);

  // What the earlier program claims of an item.
  const std::optional<EncodedItem>& claim(size_t item) const { return claims_[item]; }
  int64_t claims() const;

  // Thread-safe. Throws Error.
  void add(size_t item, const EncodedItem& encoded);

  // Whether the file at `path` is a journal with at least one record, of whatever plan.
  static bool holds_records(const std::string& path);

 private:
  void read_claims(std::span<const std::byte> bytes);

  std::string path_;
  JournalKey key_;
  std::vector<std::optional<EncodedItem>> claims_;
  std::mutex writing_;
  int64_t end_bytes_ = 0;
  std::unique_ptr<OutputFile> file_;
};

}  // namespace k3
