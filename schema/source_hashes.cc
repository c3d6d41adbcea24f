#include "schema/source_hashes.h"

#include "schema/error.h"
#include "schema/little_endian.h"

namespace k3 {

SourceHashes::SourceHashes(const PackReader& pack) {
  const PackContent& content = pack.index().content;
  size_t items = content.tensors.size();
  for (const PackBank& bank : content.banks) {
    first_of_bank_.push_back(items);
    items += bank.experts.size();
  }
  const std::vector<std::byte> stored = pack.report(kSourceHashesReport);
  if (stored.size() != items * sizeof(uint64_t)) {
    throw Error(pack.path(), ": report source_hashes: has ", stored.size(), " bytes, ", items,
                " tensors and experts make ", items * sizeof(uint64_t));
  }
  hashes_.reserve(items);
  for (size_t i = 0; i < items; ++i) {
    hashes_.push_back(load_little_endian<uint64_t>(&stored[i * sizeof(uint64_t)]));
  }
}

}  // namespace k3
