#include "passes/weight_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

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

}  // namespace k3
