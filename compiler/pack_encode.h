// From PackIndex to the bytes of an index: the only place that builds FlatBuffers.
//
// Every field is written, defaults too, so the length of the result depends on names and counts but
// on no value. A plan whose hashes are still zero therefore has exactly the length of the finished
// index, and `--dry-run` can promise the size of the file.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "schema/extent.h"
#include "schema/pack_index.h"

namespace k3 {

// The content buffer. Its XXH3-64 is the pack's payload hash.
std::vector<std::byte> encode_content(const PackContent& content);

// A whole index around `content`, which goes in byte for byte: from encode_content, or from
// PackReader::content_bytes when only receipts change. Throws Error beyond FlatBuffers' 2 GB.
std::vector<std::byte> encode_index(std::span<const std::byte> content,
                                    const PackProvenance& provenance,
                                    const std::vector<PackReceipt>& receipts,
                                    const std::vector<Extent>& retired);

}  // namespace k3
