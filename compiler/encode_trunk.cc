// A copied tensor has one hash for both sides, so it is hashed once.
//
// The planes of a quantized matrix lie one after the other (codes, of ternary2 a second time,
// multipliers, row scales), so the first leaves as it is made and the others wait in memory: a byte
// in 160 for int8, and a fifth of a byte a weight for ternary2, 50 MB for K3's largest matrix.
#include "compiler/encode_trunk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "compiler/trunk_extent.h"
#include "passes/planned_extent.h"
#include "passes/ternary_round.h"
#include "passes/weight_rows.h"
#include "schema/block_codes.h"
#include "schema/error.h"
#include "schema/formats/int8.h"
#include "schema/formats/ternary.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;

// Source bytes in order.
class SourceStream {
 public:
  SourceStream(const File& shard, const Source& source, AlignedBytes& buffer,
               const std::function<void(int64_t)>& on_read)
      : shard_(shard), source_(source), buffer_(buffer), on_read_(on_read) {}

  int64_t left_bytes() const { return source_.length_bytes - done_bytes_; }

  // The next `length_bytes`; valid until the next call.
  std::span<const std::byte> next(int64_t length_bytes) {
    const auto bytes = buffer_.room_for(length_bytes);
    shard_.read_at(source_.offset_bytes + done_bytes_, bytes);
    done_bytes_ += length_bytes;
    on_read_(length_bytes);
    return bytes;
  }

 private:
  const File& shard_;
  Source source_;
  AlignedBytes& buffer_;
  const std::function<void(int64_t)>& on_read_;
  int64_t done_bytes_ = 0;
};

void copy_rows(SourceStream& source, TrunkExtentStream& extent) {
  while (source.left_bytes() > 0) {
    extent.write(source.next(std::min(kChunkBytes, source.left_bytes())));
  }
}

// Rounds one row into the format; `multipliers` has one per block, `planes` the row's bytes in each
// plane of codes. Returns the row scale.
float encode_row(Format format, std::span<const float> weights, std::span<int8_t> codes,
                 std::span<uint8_t> multipliers, std::array<std::span<uint8_t>, 2> planes) {
  if (format == Format::kInt8) {
    const float scale = encode_int8_row(weights, codes, multipliers);
    std::copy(codes.begin(), codes.end(), planes[0].begin());
    return scale;
  }
  const float scale =
      round_ternary_row(weights, largest_ternary_code(format), codes, multipliers).row_scale;
  pack_ternary_row(format, codes, planes);
  return scale;
}

int64_t source_row_bytes(const TrunkTensor& tensor) {
  const int64_t rows = tensor.shape.rank() == 2 ? tensor.shape[0] : 1;
  return tensor.source.length_bytes / rows;
}

int64_t rows_at_once(const TrunkTensor& tensor) {
  return std::max<int64_t>(1, kChunkBytes / source_row_bytes(tensor));
}

void encode_blocks160(const TrunkTensor& tensor, WeightRows& source, TrunkExtentStream& extent) {
  const Blocks160 place{tensor.format, tensor.shape[0], tensor.shape[1]};
  const auto blocks = static_cast<size_t>(place.blocks_per_row());
  const auto stride = static_cast<size_t>(place.row_stride_bytes());
  const auto cols = static_cast<size_t>(place.cols);
  const int64_t most_rows = rows_at_once(tensor);

  std::vector<float> weights;  // a chunk of rows
  std::vector<int8_t> codes(blocks * static_cast<size_t>(kBlockInputs));
  std::vector<uint8_t> first_plane;  // a chunk of its rows
  // Everything behind the first plane, from its end to the extent's.
  const int64_t tail_offset = place.plane_bytes();
  std::vector<uint8_t> tail(static_cast<size_t>(place.extent_bytes() - tail_offset));
  const auto tail_at = [&](int64_t offset, size_t length) {
    return std::span(tail).subspan(static_cast<size_t>(offset - tail_offset), length);
  };

  for (int64_t first = 0; first < place.rows; first += most_rows) {
    const int64_t rows = std::min(most_rows, place.rows - first);
    weights.resize(static_cast<size_t>(rows) * cols);
    source.read(first, std::span(weights));
    first_plane.resize(static_cast<size_t>(rows) * stride);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = first + i;
      std::array<std::span<uint8_t>, 2> planes = {
          std::span(first_plane).subspan(static_cast<size_t>(i) * stride, stride), {}};
      if (place.planes() == 2) planes[1] = tail_at(place.code_offset(row, 0, 1), stride);
      const float scale =
          encode_row(tensor.format, std::span(weights).subspan(static_cast<size_t>(i) * cols, cols),
                     codes, tail_at(place.multiplier_offset(row, 0), blocks), planes);
      store_little_endian(
          std::bit_cast<uint32_t>(scale),
          std::as_writable_bytes(tail_at(place.row_scale_offset(row), sizeof(scale))).data());
    }
    extent.write(std::as_bytes(std::span(first_plane)));
  }
  extent.write(std::as_bytes(std::span(tail)));
}

// Rows that folding changed, as f32.
void encode_floats(const TrunkTensor& tensor, WeightRows& source, TrunkExtentStream& extent) {
  const int64_t most_rows = rows_at_once(tensor);
  std::vector<float> weights;
  std::vector<std::byte> bytes;
  for (int64_t first = 0; first < source.rows(); first += most_rows) {
    const int64_t rows = std::min(most_rows, source.rows() - first);
    weights.resize(static_cast<size_t>(rows * source.cols()));
    source.read(first, std::span(weights));
    bytes.resize(weights.size() * sizeof(float));
    for (size_t i = 0; i < weights.size(); ++i) {
      store_little_endian(std::bit_cast<uint32_t>(weights[i]), &bytes[i * sizeof(float)]);
    }
    extent.write(bytes);
  }
}

// The extent as the work folder has it.
EncodedHashes copy_solution(const TrunkTensor& tensor, const PackWriter& writer,
                            const SolutionStore& solutions, const TuningReader* tuning,
                            const std::function<void(int64_t)>& on_read) {
  const std::optional<StoredSolution> solution =
      solutions.find(*tensor.solution, tensor.extent.length_bytes);
  if (!solution) {
    throw Error(solutions.folder(), ": the solution of tensor ", tensor.name,
                " is gone or damaged since it was planned; compile again");
  }
  TrunkExtentStream extent(tensor, tuning, writer);
  extent.write(solution->extent);
  on_read(tensor.source.length_bytes);
  const auto hashes = extent.finish();
  return {hashes.extent, solution->source_xxh3, hashes.untuned};
}

}  // namespace

EncodedHashes encode_trunk_tensor(const Model& model, const TrunkTensor& tensor,
                                  const PackWriter& writer, AlignedBytes& buffer,
                                  const SolutionStore* solutions,
                                  const std::function<void(int64_t)>& on_read) {
  const TuningReader* const tuning = model.tuning.get();
  if (tensor.solution) return copy_solution(tensor, writer, *solutions, tuning, on_read);
  K3_CHECK(tensor.source.length_bytes ==
           tensor.shape.elements().value_or(-1) * dtype_bytes(tensor.dtype));
  TrunkExtentStream extent(tensor, tuning, writer);
  if (!lies_in_blocks160(tensor.format) && !tensor.folding.changes_values()) {
    SourceStream source(*model.shards[static_cast<size_t>(tensor.source.shard)], tensor.source,
                        buffer, on_read);
    copy_rows(source, extent);
    const auto hashes = extent.finish();
    return {hashes.extent, hashes.untuned, hashes.untuned};
  }
  Xxh3Stream source_hash;
  WeightRows source(model, tensor, [&](std::span<const std::byte> bytes) {
    source_hash.update(bytes);
    on_read(static_cast<int64_t>(bytes.size()));
  });
  if (lies_in_blocks160(tensor.format)) {
    encode_blocks160(tensor, source, extent);
  } else {
    encode_floats(tensor, source, extent);
  }
  hash_folding(model, tensor, source_hash);
  const auto hashes = extent.finish();
  return {hashes.extent, source_hash.digest(), hashes.untuned};
}

namespace {

int64_t untuned_buffer_bytes(const TrunkTensor& tensor) {
  if (tensor.solution) return 2 * planned_bytes(tensor);  // the record and what is taken from it
  const bool in_blocks = lies_in_blocks160(tensor.format);
  if (!in_blocks && !tensor.folding.changes_values()) {
    return std::min(kChunkBytes, tensor.source.length_bytes);
  }
  const int64_t row_bytes = source_row_bytes(tensor);
  const int64_t cols = row_bytes / dtype_bytes(tensor.dtype);
  const int64_t rows = std::min(tensor.source.length_bytes / row_bytes, rows_at_once(tensor));
  const int64_t floats = rows * cols * static_cast<int64_t>(sizeof(float));
  const int64_t source = WeightRows::memory_bytes(tensor, rows);
  if (!in_blocks) return source + 2 * floats;
  const Blocks160 place{tensor.format, tensor.shape[0], tensor.shape[1]};
  const int64_t tail = place.extent_bytes() - place.plane_bytes();
  const int64_t codes = 2 * place.blocks_per_row() * kBlockInputs;
  return source + floats + rows * place.row_stride_bytes() + tail + codes;
}

}  // namespace

int64_t trunk_buffer_bytes(const TrunkTensor& tensor) {
  if (!tensor.tuned) return untuned_buffer_bytes(tensor);
  const int64_t elements = tensor.shape.elements().value_or(0);
  const int64_t codes = tensor.tuned_codes ? elements : 0;
  return untuned_buffer_bytes(tensor) + planned_bytes(tensor) + codes;
}

}  // namespace k3
