// A rotation of the outputs is a product from the left, Q W: each row of the result is a sum over
// all rows of W, and K3's matrices are too large to be held. But Q is made of blocks, and a
// Hadamard matrix of Hadamard matrices of smaller order. So the result is made in panels of a power
// of two rows: a panel is a sum of the panels of W, each times one number, and then of the small
// Hadamard matrix over its rows. The source is read once for every group of panels that fit the
// memory; for K3's o_proj, whose panels have 512 rows, that is 14 times, from the page cache.
#include "passes/weight_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "schema/error.h"
#include "schema/formats/bf16.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;

int64_t rows_of(const TrunkTensor& tensor) {
  return tensor.shape.rank() == 2 ? tensor.shape[0] : 1;
}
int64_t cols_of(const TrunkTensor& tensor) {
  return tensor.shape.elements().value_or(0) / rows_of(tensor);
}

// How a rotation of outputs is cut.
struct Panels {
  int64_t rows = 1;     // of a panel, a power of two that divides the block
  int64_t at_once = 1;  // panels in memory
  int64_t per_block = 1;
  int64_t count = 1;
};

Panels plan_panels(const Rotation& outputs, int64_t cols, int64_t panel_bytes) {
  constexpr auto kValueBytes = static_cast<int64_t>(sizeof(double));
  const int64_t rows_in_memory = std::max<int64_t>(1, panel_bytes / (kValueBytes * cols));
  Panels panels;
  panels.rows = std::min(
      outputs.block, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows_in_memory))));
  panels.per_block = outputs.block / panels.rows;
  panels.count = outputs.width / panels.rows;
  panels.at_once = std::min(panels.count, rows_in_memory / panels.rows);
  return panels;
}

// Each column of a panel [rows, cols] becomes H times itself, a few columns at a time, which stay
// in the cache.
void butterflies_over_rows(double* panel, int64_t rows, int64_t cols) {
  constexpr int64_t kTileCols = 32;
  for (int64_t first = 0; first < cols; first += kTileCols) {
    const int64_t width = std::min(kTileCols, cols - first);
    for (int64_t stage = 1; stage < rows; stage *= 2) {
      for (int64_t i = 0; i < rows; ++i) {
        if ((i & stage) != 0) continue;
        double* const upper = panel + i * cols + first;
        double* const lower = upper + stage * cols;
        for (int64_t c = 0; c < width; ++c) {
          const double sum = upper[c] + lower[c];
          lower[c] = upper[c] - lower[c];
          upper[c] = sum;
        }
      }
    }
  }
}

const File& shard_of(const Model& model, const TrunkTensor& tensor) {
  return *model.shards[static_cast<size_t>(tensor.source.shard)];
}

}  // namespace

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
              bad - weights.begin(), " is ", *bad, ", ",
              tensor.folding.changes_values() ? "rotation" : format_name(tensor.format),
              " needs finite weights");
}

void hash_folding(const Model& model, const TrunkTensor& tensor, Xxh3Stream& hash) {
  const Folding& folding = tensor.folding;
  if (!folding.changes_values()) return;
  if (folding.gain) {
    const TrunkTensor& norm = model.trunk[*folding.gain];
    std::vector<std::byte> bytes(static_cast<size_t>(norm.source.length_bytes));
    shard_of(model, norm).read_at(norm.source.offset_bytes, bytes);
    hash.update(bytes);
  }
  std::array<uint64_t, 9> numbers = {};
  size_t next = 0;
  for (const std::optional<Rotation>& rotation : {folding.inputs, folding.outputs}) {
    if (rotation) {
      numbers[next] = static_cast<uint64_t>(rotation->width);
      numbers[next + 1] = static_cast<uint64_t>(rotation->block);
      numbers[next + 2] = rotation->seed ? 1 : 0;
      numbers[next + 3] = rotation->seed.value_or(0);
    }
    next += 4;
  }
  numbers[next] = folding.is_folded_away ? 1 : 0;
  std::array<std::byte, 8 * numbers.size()> bytes{};
  for (size_t i = 0; i < numbers.size(); ++i) store_little_endian(numbers[i], &bytes[8 * i]);
  hash.update(bytes);
}

WeightRows::WeightRows(const Model& model, const TrunkTensor& tensor, OnSource on_source,
                       int64_t panel_bytes)
    : tensor_(tensor),
      shard_(shard_of(model, tensor)),
      on_source_(std::move(on_source)),
      panel_bytes_(panel_bytes),
      rows_(rows_of(tensor)),
      cols_(cols_of(tensor)),
      line_(static_cast<size_t>(cols_)) {
  K3_CHECK(tensor.source.length_bytes == rows_ * cols_ * dtype_bytes(tensor.dtype));
  const Folding& folding = tensor.folding;
  if (folding.gain) {
    const TrunkTensor& norm = model.trunk[*folding.gain];
    K3_CHECK(cols_of(norm) == cols_);
    std::vector<std::byte> bytes(static_cast<size_t>(norm.source.length_bytes));
    const File& shard = shard_of(model, norm);
    shard.read_at(norm.source.offset_bytes, bytes);
    decode_weight_row(norm, shard, 0, bytes, line_);
    gain_.assign(line_.begin(), line_.end());
  }
  if (folding.inputs) inputs_.emplace_back(*folding.inputs);
  if (folding.outputs) outputs_.emplace_back(*folding.outputs);
  K3_CHECK(inputs_.empty() || folding.inputs->width == cols_);
  K3_CHECK(outputs_.empty() || folding.outputs->width == rows_);
}

int64_t WeightRows::memory_bytes(const TrunkTensor& tensor, int64_t rows_at_once) {
  const int64_t cols = cols_of(tensor);
  const int64_t row_bytes = cols * dtype_bytes(tensor.dtype);
  const Folding& folding = tensor.folding;
  constexpr auto kDoubleBytes = static_cast<int64_t>(sizeof(double));
  int64_t bytes = static_cast<int64_t>(sizeof(float)) * cols;
  if (folding.changes_values()) bytes += 3 * kDoubleBytes * cols;  // a gain, a row, its mixing
  if (!folding.outputs) return bytes + rows_at_once * row_bytes;
  const Panels panels = plan_panels(*folding.outputs, cols, kPanelBytes);
  return bytes + std::max(row_bytes, kChunkBytes) +
         kDoubleBytes * panels.rows * panels.at_once * cols;
}

// Calls use(row, line_) for rows in order, after decoding each into line_; reads them at once.
template <class Use>
void WeightRows::for_each_source_row(int64_t first_row, int64_t rows, bool show, const Use& use) {
  const auto row_bytes = static_cast<size_t>(cols_ * dtype_bytes(tensor_.dtype));
  bytes_.resize(static_cast<size_t>(rows) * row_bytes);
  shard_.read_at(tensor_.source.offset_bytes + first_row * static_cast<int64_t>(row_bytes), bytes_);
  if (show && on_source_) on_source_(bytes_);
  for (int64_t i = 0; i < rows; ++i) {
    decode_weight_row(tensor_, shard_, first_row + i,
                      std::span(bytes_).subspan(static_cast<size_t>(i) * row_bytes, row_bytes),
                      line_);
    use(first_row + i);
  }
}

uint64_t hash_source(const Model& model, const TrunkTensor& tensor) {
  const File& shard = shard_of(model, tensor);
  const Source& source = tensor.source;
  Xxh3Stream hash;
  std::vector<std::byte> chunk;
  for (int64_t at = 0; at < source.length_bytes; at += kChunkBytes) {
    chunk.resize(static_cast<size_t>(std::min(kChunkBytes, source.length_bytes - at)));
    read_hashed(shard, source.offset_bytes + at, chunk, hash);
  }
  hash_folding(model, tensor, hash);
  return hash.digest();
}

// The gain and the rotation of the inputs, both of which act on one row alone.
void WeightRows::finish_row(std::span<double> row) const {
  for (size_t col = 0; col < gain_.size(); ++col) row[col] *= gain_[col];
  if (!inputs_.empty()) inputs_.front().apply(row);
}

void WeightRows::make_panels(int64_t first_panel) {
  const RotationMatrix& matrix = outputs_.front();
  const Panels plan = plan_panels(matrix.rotation(), cols_, panel_bytes_);
  const int64_t panels = std::min(plan.at_once, plan.count - first_panel);
  const auto cols = static_cast<size_t>(cols_);
  panels_.assign(static_cast<size_t>(panels * plan.rows) * cols, 0.0);
  const auto row_at = [&](int64_t row) {
    return std::span(panels_).subspan(static_cast<size_t>(row) * cols, cols);
  };

  const auto add = [&](int64_t source_row) {
    const int64_t from = source_row / plan.rows;
    const double sign = matrix.sign(source_row);
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t to = first_panel + i;
      const double mixing = matrix.mixing(to / plan.per_block, from / plan.per_block);
      if (mixing == 0) continue;
      const double factor =
          sign * mixing * matrix.panel_factor(to % plan.per_block, from % plan.per_block);
      double* const sums = row_at(i * plan.rows + source_row % plan.rows).data();
      for (size_t col = 0; col < cols; ++col) sums[col] += factor * double{line_[col]};
    }
  };
  const int64_t rows_at_once =
      std::max<int64_t>(1, kChunkBytes / (cols_ * dtype_bytes(tensor_.dtype)));
  for (int64_t row = 0; row < rows_; row += rows_at_once) {
    for_each_source_row(row, std::min(rows_at_once, rows_ - row), first_panel == 0, add);
  }

  for (int64_t i = 0; i < panels; ++i) {
    butterflies_over_rows(row_at(i * plan.rows).data(), plan.rows, cols_);
  }
  for (int64_t row = 0; row < panels * plan.rows; ++row) finish_row(row_at(row));
  made_begin_ = first_panel * plan.rows;
  made_end_ = made_begin_ + panels * plan.rows;
}

template <class Real>
void WeightRows::read_as(int64_t first_row, std::span<Real> weights) {
  const auto cols = static_cast<size_t>(cols_);
  K3_CHECK(weights.size() % cols == 0);
  const auto rows = static_cast<int64_t>(weights.size() / cols);
  const auto row_at = [&](int64_t row) {
    return weights.subspan(static_cast<size_t>(row - first_row) * cols, cols);
  };
  const auto store = [&](std::span<const double> from, std::span<Real> to) {
    for (size_t col = 0; col < cols; ++col) {
      if (!(std::abs(from[col]) <= double{std::numeric_limits<float>::max()})) {
        throw Error(shard_.path(), ": tensor ", tensor_.name, ": column ", col,
                    " of a rotated row is ", from[col], ", beyond what a float holds");
      }
      to[col] = static_cast<Real>(from[col]);
    }
  };

  if (!outputs_.empty()) {
    const Panels plan = plan_panels(outputs_.front().rotation(), cols_, panel_bytes_);
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      if (row < made_begin_ || row >= made_end_) {
        make_panels(row / plan.rows / plan.at_once * plan.at_once);
      }
      store(std::span(panels_).subspan(static_cast<size_t>(row - made_begin_) * cols, cols),
            row_at(row));
    }
    return;
  }
  std::vector<double> wide(cols);
  for_each_source_row(first_row, rows, true, [&](int64_t row) {
    if (tensor_.folding.is_folded_away) {
      std::fill_n(row_at(row).begin(), cols, Real{1});
    } else if (!tensor_.folding.changes_values()) {
      std::copy(line_.begin(), line_.end(), row_at(row).begin());
    } else {
      wide.assign(line_.begin(), line_.end());
      finish_row(wide);
      store(wide, row_at(row));
    }
  });
}

template void WeightRows::read_as(int64_t first_row, std::span<float> weights);
template void WeightRows::read_as(int64_t first_row, std::span<double> weights);

}  // namespace k3
