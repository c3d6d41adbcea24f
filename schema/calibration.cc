#include "schema/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "schema/calibration_index.h"
#include "schema/calibration_sums.h"
#include "schema/error.h"
#include "schema/gram_place.h"
#include "schema/hash.h"
#include "schema/layout.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

// K3's index has 3 MB.
constexpr int64_t kLargestIndexBytes = int64_t{1} << 30;

uint64_t hash_of_hashes(std::span<const uint64_t> first, std::span<const uint64_t> second) {
  Xxh3Stream stream;
  for (const std::span<const uint64_t> hashes : {first, second}) {
    for (const uint64_t hash : hashes) {
      std::array<std::byte, 8> bytes;
      store_little_endian(hash, bytes.data());
      stream.update(bytes);
    }
  }
  return stream.digest();
}

void expect_zeros(const std::string& path, std::span<const std::byte> padding) {
  const bool zero = std::all_of(padding.begin(), padding.end(),
                                [](std::byte value) { return value == std::byte{0}; });
  if (!zero) throw Error(path, ": is damaged: padding between extents is not zero");
}

// Reads an extent with the padding behind it and checks both.
std::vector<std::byte> read_extent(const File& file, const Extent& extent) {
  const int64_t padded = align_up(extent.length_bytes, kExtentAlignment);
  std::vector<std::byte> bytes(static_cast<size_t>(padded));
  file.read_at(extent.offset_bytes, bytes);
  expect_zeros(file.path(), std::span(bytes).subspan(static_cast<size_t>(extent.length_bytes)));
  bytes.resize(static_cast<size_t>(extent.length_bytes));
  if (xxh3(bytes) != extent.xxh3) {
    throw Error(file.path(), ": is damaged: the hash of the extent at ", extent.offset_bytes,
                " does not match its bytes");
  }
  return bytes;
}

// 2^exponent, exactly: steps of floats lie in -163..114, so that of a product is a normal double.
double power(int exponent) {
  return std::ldexp(1.0, exponent);
}

}  // namespace

uint64_t CalibrationIndex::split_xxh3() const {
  return hash_of_hashes(documents[0].xxh3, documents[1].xxh3);
}

uint64_t CalibrationIndex::text_xxh3() const {
  std::vector<uint64_t> hashes;
  for (const CalibrationText& text : texts) hashes.push_back(text.xxh3);
  return hash_of_hashes(hashes, {});
}

CalibrationReader::CalibrationReader(const std::string& path) : file_(path) {
  std::vector<std::byte> head(static_cast<size_t>(std::min(file_.size_bytes(), kExtentAlignment)));
  file_.read_at(0, head);
  const PackFrame frame =
      decode_frame(head, path, file_.size_bytes(), Tail::kRefuse, kCalibrationFrame);
  expect_zeros(path, std::span(head).subspan(static_cast<size_t>(kFrameBytes)));
  if (frame.index.length_bytes > kLargestIndexBytes) {
    throw Error(path, ": index has ", frame.index.length_bytes, " bytes, at most ",
                kLargestIndexBytes, " are read");
  }
  std::vector<std::byte> index(static_cast<size_t>(frame.index.length_bytes));
  file_.read_at(frame.index.offset_bytes, index);
  index_xxh3_ = xxh3(index);
  if (index_xxh3_ != frame.index.xxh3) {
    throw Error(path, ": is damaged: the hash of the index does not match its bytes");
  }
  index_ =
      parse_calibration_index(path, {reinterpret_cast<const char*>(index.data()), index.size()});
  check_calibration_index(path, index_, frame.index.offset_bytes);
  for (const CalibrationInput& input : index_.inputs) {
    for (const CalibrationMatrix& matrix : input.matrices) by_matrix_[matrix.name] = &input;
  }
}

const CalibrationInput* CalibrationReader::find(std::string_view matrix) const {
  const auto found = by_matrix_.find(matrix);
  return found == by_matrix_.end() ? nullptr : found->second;
}

const CalibrationInput& CalibrationReader::expect(std::string_view matrix, int64_t cols,
                                                  uint64_t source_xxh3) const {
  const CalibrationInput* input = find(matrix);
  if (input == nullptr) throw Error(path(), ": matrix ", matrix, " was not captured");
  if (input->width != cols) {
    throw Error(path(), ": matrix ", matrix, ": its input is ", input->width,
                " wide, the model's matrix has ", cols, " columns");
  }
  const auto captured =
      std::find_if(input->matrices.begin(), input->matrices.end(),
                   [matrix](const CalibrationMatrix& one) { return one.name == matrix; });
  if (captured->source_xxh3 != source_xxh3) {
    throw Error(path(), ": matrix ", matrix, " was captured on other weights: their hash is ",
                hex_digits(captured->source_xxh3), ", the checkpoint's is ",
                hex_digits(source_xxh3));
  }
  return *input;
}

std::vector<int64_t> CalibrationReader::piece(const Extent& extent, int64_t entries) const {
  std::vector<int64_t> sums(static_cast<size_t>(entries));
  decompress_sums(read_extent(file_, extent), path() + ": sums", sums);
  return sums;
}

std::vector<int16_t> CalibrationReader::read_steps(const Extent& extent, int64_t width) const {
  std::vector<int16_t> steps =
      decompress_steps(read_extent(file_, extent), width, path() + ": steps");
  for (const int16_t step : steps) {
    if (step < kLeastStep || step > kLargestStep) {
      throw Error(path(), ": a channel's step is 2^", step, ", expected 2^", kLeastStep, " to 2^",
                  kLargestStep);
    }
  }
  return steps;
}

std::vector<int16_t> CalibrationReader::steps(const CalibrationInput& input) const {
  return read_steps(input.steps, input.width);
}
std::vector<int16_t> CalibrationReader::source_steps(const CalibrationInput& input) const {
  K3_CHECK(is_propagated());
  return read_steps(input.source_steps, input.width);
}

template <class Number>
void CalibrationReader::symmetric(const std::vector<Extent>& pieces, std::span<const int16_t> steps,
                                  std::span<Number> dst) const {
  const auto width = static_cast<int64_t>(steps.size());
  K3_CHECK(std::ssize(dst) == width * width);
  const GramPlace place{width, true};
  const std::vector<RowRange> ranges = place.pieces();
  for (size_t i = 0; i < ranges.size(); ++i) {
    const std::vector<int64_t> sums = piece(pieces[i], place.entries(ranges[i]));
    const int64_t* at = sums.data();
    for (int64_t r = ranges[i].begin; r < ranges[i].end; ++r) {
      for (int64_t c = r; c < width; ++c) {
        const int exponent = steps[static_cast<size_t>(r)] + steps[static_cast<size_t>(c)];
        const auto value = static_cast<Number>(static_cast<double>(*at++) * power(exponent));
        dst[static_cast<size_t>(r * width + c)] = value;
        dst[static_cast<size_t>(c * width + r)] = value;
      }
    }
  }
}

template <class Number>
void CalibrationReader::full(const std::vector<Extent>& pieces, std::span<const int16_t> row_steps,
                             std::span<const int16_t> col_steps, std::span<Number> dst) const {
  const auto width = static_cast<int64_t>(row_steps.size());
  K3_CHECK(std::ssize(dst) == width * width);
  const GramPlace place{width, false};
  const std::vector<RowRange> ranges = place.pieces();
  for (size_t i = 0; i < ranges.size(); ++i) {
    const std::vector<int64_t> sums = piece(pieces[i], place.entries(ranges[i]));
    const int64_t* at = sums.data();
    for (int64_t r = ranges[i].begin; r < ranges[i].end; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        const int exponent = row_steps[static_cast<size_t>(r)] + col_steps[static_cast<size_t>(c)];
        dst[static_cast<size_t>(r * width + c)] =
            static_cast<Number>(static_cast<double>(*at++) * power(exponent));
      }
    }
  }
}

void CalibrationReader::gram(const CalibrationInput& input, CalibrationHalf half,
                             std::span<double> dst) const {
  symmetric(input.of(half).gram, steps(input), dst);
}
void CalibrationReader::gram(const CalibrationInput& input, CalibrationHalf half,
                             std::span<float> dst) const {
  symmetric(input.of(half).gram, steps(input), dst);
}
void CalibrationReader::cross(const CalibrationInput& input, CalibrationHalf half,
                              std::span<double> dst) const {
  full(input.of(half).cross, source_steps(input), steps(input), dst);
}
void CalibrationReader::cross(const CalibrationInput& input, CalibrationHalf half,
                              std::span<float> dst) const {
  full(input.of(half).cross, source_steps(input), steps(input), dst);
}
void CalibrationReader::source_gram(const CalibrationInput& input, CalibrationHalf half,
                                    std::span<double> dst) const {
  symmetric(input.of(half).source_gram, source_steps(input), dst);
}
void CalibrationReader::source_gram(const CalibrationInput& input, CalibrationHalf half,
                                    std::span<float> dst) const {
  symmetric(input.of(half).source_gram, source_steps(input), dst);
}

}  // namespace k3
