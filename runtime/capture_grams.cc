#include "runtime/capture_grams.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <optional>

#include "kernels/gram.h"
#include "schema/calibration_sums.h"
#include "schema/error.h"
#include "schema/stopwatch.h"

namespace k3 {
namespace {

constexpr int64_t kSumBytes = 8;

// The rows of one block of tokens and their codes, of both sides.
int64_t block_bytes(int64_t width) {
  const int64_t rows = cpu::GramCodes::kMostTokens * width * static_cast<int64_t>(sizeof(float));
  return rows + 2 * cpu::GramCodes::bytes(width);
}

// Pieces [first, end) whose sums fit `sums_bytes` together; at least one.
size_t end_of_band(const GramPlace& place, std::span<const RowRange> pieces, size_t first,
                   int64_t sums_bytes) {
  size_t end = first + 1;
  while (end < pieces.size() &&
         place.entries({pieces[first].begin, pieces[end].end}) * kSumBytes <= sums_bytes) {
    ++end;
  }
  return end;
}

void sum_band(const GramPlace& place, RowRange rows, const GramSide& y, const GramSide& x,
              RowRange tokens, std::vector<int64_t>& sums) {
  const bool same = y.rows == x.rows;
  std::vector<float> values(static_cast<size_t>(cpu::GramCodes::kMostTokens * place.width));
  cpu::GramCodes columns(place.width);
  std::optional<cpu::GramCodes> other;
  if (!same) other.emplace(place.width);
  for (int64_t t = tokens.begin; t < tokens.end; t += cpu::GramCodes::kMostTokens) {
    const int64_t count = std::min(cpu::GramCodes::kMostTokens, tokens.end - t);
    x.rows->read(t, count, values.data());
    columns.set(values.data(), count, x.exponents.data());
    if (!same) {
      y.rows->read(t, count, values.data());
      other->set(values.data(), count, y.exponents.data());
    }
    cpu::add_gram(place, rows, same ? columns : *other, columns, sums.data());
  }
}

}  // namespace

int64_t least_gram_bytes(int64_t width) {
  const int64_t entries = std::max(std::min(kGramPieceEntries, width * width), width);
  return block_bytes(width) + entries * kSumBytes * 3;  // sums, their planes, the compressed ones
}

std::vector<Extent> write_gram(const GramPlace& place, const GramSide& y, const GramSide& x,
                               RowRange tokens, int64_t memory_bytes, CalibrationWriter& writer,
                               GramCost& cost) {
  K3_CHECK(y.rows->width() == place.width && x.rows->width() == place.width);
  std::vector<Extent> extents;
  const std::vector<RowRange> pieces = place.pieces();
  for (size_t first = 0; first < pieces.size();) {
    // A third is for the pieces on their way into the file.
    const size_t end =
        end_of_band(place, pieces, first, (memory_bytes - block_bytes(place.width)) / 3);
    const RowRange rows{pieces[first].begin, pieces[end - 1].end};
    const Stopwatch summing;
    std::vector<int64_t> sums(static_cast<size_t>(place.entries(rows)));
    sum_band(place, rows, y, x, tokens, sums);
    cost.seconds += summing.seconds();
    cost.products += place.entries(rows) * (tokens.end - tokens.begin);
    cost.sums += place.entries(rows);

    const Stopwatch storing;
    std::vector<std::vector<std::byte>> stored(end - first);
    tbb::parallel_for(size_t{0}, stored.size(), [&](size_t i) {
      const RowRange piece = pieces[first + i];
      const auto begin = static_cast<size_t>(place.entries({rows.begin, piece.begin}));
      stored[i] =
          compress_sums(std::span(sums).subspan(begin, static_cast<size_t>(place.entries(piece))));
    });
    for (const std::vector<std::byte>& bytes : stored) {
      extents.push_back(writer.add(bytes));
      cost.bytes += std::ssize(bytes);
    }
    cost.store_seconds += storing.seconds();
    first = end;
  }
  return extents;
}

}  // namespace k3
