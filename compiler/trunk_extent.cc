// Block scales are the end of a matrix' extent and nothing else is there, so tuning replaces that
// end: codes pass through as they come, whether a solver or rounding made them, unless they were
// trained too. What would have been written is hashed all the same, because that hash says whether
// the tuning belongs here.
#include "compiler/trunk_extent.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

#include "schema/block_codes.h"
#include "schema/error.h"
#include "schema/formats/block_scales.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

Blocks160 place_of(const TrunkTensor& tensor) {
  return {tensor.format, tensor.shape[0], tensor.shape[1]};
}

}  // namespace

TrunkExtentStream::TrunkExtentStream(const TrunkTensor& tensor, const TuningReader* tuning,
                                     const PackWriter& writer)
    : tensor_(tensor), tuning_(tuning), stream_(writer, tensor.extent) {
  K3_CHECK(!tensor.tuned || tuning != nullptr);
  if (!tensor.tuned) {
    kept_bytes_ = std::numeric_limits<int64_t>::max();
  } else if (lies_in_blocks160(tensor.format) && !tensor.tuned_codes) {
    kept_bytes_ = place_of(tensor).multipliers_offset();
  }
}

void TrunkExtentStream::write(std::span<const std::byte> bytes) {
  if (tensor_.tuned) untuned_.update(bytes);
  const int64_t kept = std::min(kept_bytes_, static_cast<int64_t>(bytes.size()));
  if (kept > 0) stream_.write(bytes.first(static_cast<size_t>(kept)));
  kept_bytes_ -= kept;
}

TrunkExtentStream::Hashes TrunkExtentStream::finish() {
  if (!tensor_.tuned) {
    const uint64_t hash = stream_.finish();
    return {hash, hash};
  }
  if (tensor_.tuned_codes) write_codes();
  lies_in_blocks160(tensor_.format) ? write_scales() : write_gain();
  return {stream_.finish(), untuned_.digest()};
}

void TrunkExtentStream::write_codes() {
  const Blocks160 place = place_of(tensor_);
  std::vector<int8_t> codes(static_cast<size_t>(place.rows * place.cols));
  tuning_->read_codes(*tensor_.tuned_codes, largest_code(place.format), codes);
  std::vector<std::byte> planes(static_cast<size_t>(place.multipliers_offset()));
  pack_codes(place, codes, planes);
  stream_.write(planes);
}

void TrunkExtentStream::write_scales() {
  const Blocks160 place = place_of(tensor_);
  std::vector<float> scales(static_cast<size_t>(place.rows * place.blocks_per_row()));
  tuning_->read(*tensor_.tuned, scales);
  const StoredScales stored(scales, place.rows);

  const int64_t start = place.multipliers_offset();
  std::vector<std::byte> end(static_cast<size_t>(place.extent_bytes() - start));
  std::ranges::copy(std::as_bytes(std::span(stored.multipliers)), end.begin());
  for (int64_t row = 0; row < place.rows; ++row) {
    store_little_endian(std::bit_cast<uint32_t>(stored.row_scales[static_cast<size_t>(row)]),
                        &end[static_cast<size_t>(place.row_scale_offset(row) - start)]);
  }
  stream_.write(end);
}

void TrunkExtentStream::write_gain() {
  std::vector<float> gain(static_cast<size_t>(tensor_.shape.elements().value_or(0)));
  tuning_->read(*tensor_.tuned, gain);
  std::vector<std::byte> bytes(gain.size() * sizeof(float));
  for (size_t i = 0; i < gain.size(); ++i) {
    store_little_endian(std::bit_cast<uint32_t>(gain[i]), &bytes[i * sizeof(float)]);
  }
  stream_.write(bytes);
}

}  // namespace k3
