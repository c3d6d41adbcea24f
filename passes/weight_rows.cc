#include "passes/weight_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "schema/error.h"
#include "schema/formats/bf16.h"
#include "schema/little_endian.h"

namespace k3 {

void decode_weight_row(const TrunkTensor& tensor, const File& shard, int64_t row,
                       std::span<const std::byte> bytes, std::span<float> weights) {
  for (size_t col = 0; col < weights.size(); ++col) {
    weights[col] = tensor.dtype == Dtype::kF32
                       ? std::bit_cast<float>(load_little_endian<uint32_t>(&bytes[4 * col]))
                       : decode_bf16(load_little_endian<uint16_t>(&bytes[2 * col]));
  }
  const auto bad = std::find_if_not(weights.begin(), weights.end(),
                                    [](float weight) { return std::isfinite(weight); });
  if (bad == weights.end()) return;
  throw Error(shard.path(), ": tensor ", tensor.name, ": weight at row ", row, ", column ",
              bad - weights.begin(), " is ", *bad, ", ", format_name(tensor.format),
              " needs finite weights");
}

void read_weight_rows(const TrunkTensor& tensor, const File& shard, int64_t first_row,
                      std::span<float> weights) {
  const auto cols = static_cast<size_t>(tensor.shape[1]);
  const auto row_bytes = cols * static_cast<size_t>(dtype_bytes(tensor.dtype));
  K3_CHECK(weights.size() % cols == 0);
  const size_t rows = weights.size() / cols;
  std::vector<std::byte> bytes(rows * row_bytes);
  shard.read_at(tensor.source.offset_bytes + first_row * static_cast<int64_t>(row_bytes), bytes);
  for (size_t i = 0; i < rows; ++i) {
    decode_weight_row(tensor, shard, first_row + static_cast<int64_t>(i),
                      std::span(bytes).subspan(i * row_bytes, row_bytes),
                      weights.subspan(i * cols, cols));
  }
}

uint64_t hash_source(const TrunkTensor& tensor, const File& shard) {
  constexpr int64_t kChunkBytes = int64_t{4} << 20;
  const Source& source = tensor.source;
  Xxh3Stream hash;
  std::vector<std::byte> chunk;
  for (int64_t at = 0; at < source.length_bytes; at += kChunkBytes) {
    chunk.resize(static_cast<size_t>(std::min(kChunkBytes, source.length_bytes - at)));
    read_hashed(shard, source.offset_bytes + at, chunk, hash);
  }
  return hash.digest();
}

}  // namespace k3
