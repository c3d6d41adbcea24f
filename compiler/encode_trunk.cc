// The planes of int8 lie one after the other (codes, multipliers, row scales), so codes leave as
// they are made and the two small planes wait in memory: 5 bytes in 160 at most, 8 MB for K3's head.
#include "compiler/encode_trunk.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "passes/planned_extent.h"
#include "schema/error.h"
#include "schema/formats/bf16.h"
#include "schema/formats/int8.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;

// Source bytes in order, hashed as they come.
class SourceStream {
 public:
  SourceStream(const File& shard, const Source& source,
               const std::function<void(int64_t)>& on_read)
      : shard_(shard), source_(source), on_read_(on_read) {}

  int64_t left_bytes() const { return source_.length_bytes - done_bytes_; }

  // The next `length_bytes`; valid until the next call.
  std::span<const std::byte> next(int64_t length_bytes) {
    buffer_.resize(static_cast<size_t>(length_bytes));
    shard_.read_at(source_.offset_bytes + done_bytes_, buffer_);
    hash_.update(buffer_);
    done_bytes_ += length_bytes;
    on_read_(length_bytes);
    return buffer_;
  }
  uint64_t digest() const { return hash_.digest(); }

 private:
  const File& shard_;
  Source source_;
  const std::function<void(int64_t)>& on_read_;
  int64_t done_bytes_ = 0;
  std::vector<std::byte> buffer_;
  Xxh3Stream hash_;
};

void copy_rows(SourceStream& source, ExtentStream& extent) {
  while (source.left_bytes() > 0) {
    extent.write(source.next(std::min(kChunkBytes, source.left_bytes())));
  }
}

void decode_row(Dtype dtype, std::span<const std::byte> bytes, std::span<float> weights) {
  for (size_t col = 0; col < weights.size(); ++col) {
    weights[col] = dtype == Dtype::kF32
                       ? std::bit_cast<float>(load_little_endian<uint32_t>(&bytes[4 * col]))
                       : decode_bf16(load_little_endian<uint16_t>(&bytes[2 * col]));
  }
}

void check_finite(const TrunkTensor& tensor, const File& shard, int64_t row,
                  std::span<const float> weights) {
  const auto bad = std::find_if_not(weights.begin(), weights.end(),
                                    [](float weight) { return std::isfinite(weight); });
  if (bad == weights.end()) return;
  throw Error(shard.path(), ": tensor ", tensor.name, ": weight at row ", row, ", column ",
              bad - weights.begin(), " is ", *bad, ", int8 needs finite weights");
}

void encode_int8(const TrunkTensor& tensor, const File& shard, SourceStream& source,
                 ExtentStream& extent) {
  const Blocks160 place{tensor.shape[0], tensor.shape[1]};
  const auto blocks = static_cast<size_t>(place.blocks_per_row());
  const auto stride = static_cast<size_t>(place.row_stride_bytes());
  const int64_t source_row_bytes = place.cols * dtype_bytes(tensor.dtype);
  const int64_t rows_at_once = std::max<int64_t>(1, kChunkBytes / source_row_bytes);

  std::vector<float> weights(static_cast<size_t>(place.cols));
  std::vector<int8_t> codes;
  // Everything behind the codes, from their end to the extent's.
  const int64_t codes_bytes = place.rows * place.row_stride_bytes();
  std::vector<std::byte> tail(static_cast<size_t>(place.extent_bytes() - codes_bytes));
  auto* const multipliers =
      reinterpret_cast<uint8_t*>(tail.data()) + (place.multipliers_offset() - codes_bytes);
  std::byte* const row_scales = tail.data() + (place.row_scales_offset() - codes_bytes);

  for (int64_t first = 0; first < place.rows; first += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, place.rows - first);
    const auto bytes = source.next(rows * source_row_bytes);
    codes.resize(static_cast<size_t>(rows) * stride);
    for (int64_t i = 0; i < rows; ++i) {
      const auto row = static_cast<size_t>(first + i);
      decode_row(tensor.dtype,
                 bytes.subspan(static_cast<size_t>(i * source_row_bytes),
                               static_cast<size_t>(source_row_bytes)),
                 weights);
      check_finite(tensor, shard, first + i, weights);
      const float scale = encode_int8_row(
          weights, std::span(codes).subspan(static_cast<size_t>(i) * stride, stride),
          std::span(multipliers + row * blocks, blocks));
      store_little_endian(std::bit_cast<uint32_t>(scale), row_scales + 4 * row);
    }
    extent.write(std::as_bytes(std::span(codes)));
  }
  extent.write(tail);
}

}  // namespace

EncodedHashes encode_trunk_tensor(const TrunkTensor& tensor, const File& shard,
                                  const PackWriter& writer,
                                  const std::function<void(int64_t)>& on_read) {
  K3_CHECK(tensor.source.length_bytes ==
           tensor.shape.elements().value_or(-1) * dtype_bytes(tensor.dtype));
  SourceStream source(shard, tensor.source, on_read);
  ExtentStream extent(writer, tensor.extent);
  if (tensor.format == Format::kInt8) {
    encode_int8(tensor, shard, source, extent);
  } else {
    copy_rows(source, extent);
  }
  return {extent.finish(), source.digest()};
}

}  // namespace k3
