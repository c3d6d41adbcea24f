// Two calibrations into one, a piece at a time. Realigning a channel to a coarser step divides its
// sums by a power of two, which no longer is exact: a merged file is good to about one unit of the
// coarser steps' product per sum, and is not the file that a joint capture would have written.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unordered_set>
#include <utility>

#include "schema/calibration_sums.h"
#include "schema/calibration_writer.h"
#include "schema/error.h"
#include "schema/gram_place.h"
#include "schema/hash.h"
#include "schema/printable.h"

namespace k3 {
namespace {

void check_mergeable(const CalibrationReader& first, const CalibrationReader& second) {
  const auto differs = [&](const auto&... what) {
    throw Error(second.path(), ": cannot be merged with ", first.path(), ": ", what...);
  };
  const CalibrationIndex& a = first.index();
  const CalibrationIndex& b = second.index();
  if (a.model_payload_xxh3 != b.model_payload_xxh3 ||
      a.propagated_payload_xxh3 != b.propagated_payload_xxh3) {
    differs("it was captured on another pack");
  }
  if (a.window_tokens != b.window_tokens) {
    differs("its documents were cut into windows of ", b.window_tokens, " tokens, not ",
            a.window_tokens);
  }
  if (a.inputs.size() != b.inputs.size()) {
    differs("it has ", b.inputs.size(), " inputs, not ", a.inputs.size());
  }
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    if (a.inputs[i].name != b.inputs[i].name || a.inputs[i].width != b.inputs[i].width) {
      differs("its input ", i, " is ", printable(b.inputs[i].name), " of width ", b.inputs[i].width,
              ", not ", printable(a.inputs[i].name), " of width ", a.inputs[i].width);
    }
  }
  for (const CalibrationHalf half : kCalibrationHalves) {
    const std::unordered_set<uint64_t> ours(a.of(half).xxh3.begin(), a.of(half).xxh3.end());
    for (const uint64_t document : b.of(half).xxh3) {
      if (ours.contains(document)) {
        differs("document ", hex_digits(document), " is in both and would count twice");
      }
    }
  }
}

// Channels of one side of a matrix: the merged steps, and how far each file's are below them.
struct Alignment {
  std::vector<int16_t> steps;
  std::vector<int> first_shift, second_shift;

  Alignment(const std::vector<int16_t>& first, const std::vector<int16_t>& second) {
    for (size_t i = 0; i < first.size(); ++i) {
      // A channel that was always zero has the least step, so the other file's holds.
      steps.push_back(std::max(first[i], second[i]));
      first_shift.push_back(first[i] - steps.back());
      second_shift.push_back(second[i] - steps.back());
    }
  }
};

int64_t realigned(int64_t sum, int shift) {
  if (shift == 0) return sum;
  return static_cast<int64_t>(std::rint(std::ldexp(static_cast<double>(sum), shift)));
}

class Merger {
 public:
  Merger(const CalibrationReader& first, const CalibrationReader& second, const std::string& path)
      : first_(first), second_(second), writer_(path) {}

  CalibrationInput merged(const CalibrationInput& a, const CalibrationInput& b) {
    CalibrationInput input{.name = a.name,
                           .width = a.width,
                           .matrices = a.matrices,
                           .steps = {},
                           .source_steps = {},
                           .sums = {}};
    const Alignment read(first_.steps(a), second_.steps(b));
    input.steps = writer_.add(compress_steps(read.steps));
    const GramPlace triangle{a.width, true};
    if (!first_.is_propagated()) {
      for (size_t half = 0; half < input.sums.size(); ++half) {
        input.sums[half].gram = add(a.sums[half].gram, b.sums[half].gram, triangle, read, read);
      }
      return input;
    }
    const Alignment source(first_.source_steps(a), second_.source_steps(b));
    input.source_steps = writer_.add(compress_steps(source.steps));
    for (size_t half = 0; half < input.sums.size(); ++half) {
      const CalibrationSums& x = a.sums[half];
      const CalibrationSums& y = b.sums[half];
      input.sums[half].gram = add(x.gram, y.gram, triangle, read, read);
      input.sums[half].cross = add(x.cross, y.cross, {a.width, false}, source, read);
      input.sums[half].source_gram = add(x.source_gram, y.source_gram, triangle, source, source);
    }
    return input;
  }

  void finish(const CalibrationIndex& index, const std::string& path) {
    writer_.finish(index, path);
  }

 private:
  std::vector<Extent> add(const std::vector<Extent>& a, const std::vector<Extent>& b,
                          const GramPlace& place, const Alignment& rows, const Alignment& cols) {
    std::vector<Extent> pieces;
    const std::vector<RowRange> ranges = place.pieces();
    for (size_t i = 0; i < ranges.size(); ++i) {
      std::vector<int64_t> sums = first_.piece(a[i], place.entries(ranges[i]));
      const std::vector<int64_t> others = second_.piece(b[i], place.entries(ranges[i]));
      size_t at = 0;
      for (int64_t r = ranges[i].begin; r < ranges[i].end; ++r) {
        const auto row = static_cast<size_t>(r);
        for (auto col = static_cast<size_t>(place.first_col(r)); col < cols.steps.size(); ++col) {
          const int64_t ours = realigned(sums[at], rows.first_shift[row] + cols.first_shift[col]);
          const int64_t theirs =
              realigned(others[at], rows.second_shift[row] + cols.second_shift[col]);
          // Of sound files a sum has room; of others it may wrap.
          sums[at] =
              static_cast<int64_t>(static_cast<uint64_t>(ours) + static_cast<uint64_t>(theirs));
          ++at;
        }
      }
      pieces.push_back(writer_.add(compress_sums(sums)));
    }
    return pieces;
  }

  const CalibrationReader& first_;
  const CalibrationReader& second_;
  CalibrationWriter writer_;
};

}  // namespace

void merge_calibrations(const CalibrationReader& first, const CalibrationReader& second,
                        const std::string& path) {
  check_mergeable(first, second);
  CalibrationIndex index = first.index();
  const CalibrationIndex& other = second.index();
  index.texts.insert(index.texts.end(), other.texts.begin(), other.texts.end());
  for (size_t half = 0; half < index.documents.size(); ++half) {
    CalibrationDocuments& documents = index.documents[half];
    documents.tokens += other.documents[half].tokens;
    documents.xxh3.insert(documents.xxh3.end(), other.documents[half].xxh3.begin(),
                          other.documents[half].xxh3.end());
  }
  index.inputs.clear();
  const std::string neighbour = path + ".unfinished";
  try {
    Merger merger(first, second, neighbour);
    for (size_t i = 0; i < other.inputs.size(); ++i) {
      index.inputs.push_back(merger.merged(first.index().inputs[i], other.inputs[i]));
    }
    merger.finish(index, path);
  } catch (...) {
    std::remove(neighbour.c_str());
    throw;
  }
}

}  // namespace k3
