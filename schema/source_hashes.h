// The report `source_hashes` of a pack: from which bytes of the checkpoint each item was made. Two
// packs are of the same model where these agree, whatever became of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schema/pack_reader.h"

namespace k3 {

inline constexpr const char* kSourceHashesReport = "source_hashes";

// Hashes of source bytes: of each trunk tensor, then of each expert, as the index has them.
class SourceHashes {
 public:
  // Throws Error when the report is missing, damaged or has not one hash per item.
  explicit SourceHashes(const PackReader& pack);

  uint64_t of_tensor(size_t tensor) const { return hashes_[tensor]; }
  uint64_t of_expert(size_t bank, size_t expert) const {
    return hashes_[first_of_bank_[bank] + expert];
  }

 private:
  std::vector<uint64_t> hashes_;
  std::vector<size_t> first_of_bank_;
};

}  // namespace k3
