// The rows of a trunk tensor as they are to be stored: from their bytes in the checkpoint, after
// folding and rotation. For the passes that look at values and for the encoder that stores them;
// neither knows what was done to a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "passes/model.h"
#include "passes/rotation.h"
#include "schema/file.h"
#include "schema/hash.h"

namespace k3 {

// Decodes row `row` of `tensor`, whose `bytes` are f32 or bf16 as in the checkpoint. Throws Error
// that names the first weight that is not finite: no integer format can hold it, and a rotation
// would spread it.
void decode_weight_row(const TrunkTensor& tensor, const File& shard, int64_t row,
                       std::span<const std::byte> bytes, std::span<float> weights);

// The hash of what a tensor's values are made of, a few megabytes at a time: its bytes in the
// checkpoint, and what hash_folding adds. Encode arrives at the same. Throws Error.
uint64_t hash_source(const Model& model, const TrunkTensor& tensor);

// Adds to the hash of a tensor's source bytes what else decides its values: nothing unless folding
// changes them (schema/README.md, source_hashes). So what was measured in one basis is never taken
// for another.
void hash_folding(const Model& model, const TrunkTensor& tensor, Xxh3Stream& hash);

// One reader of one tensor; any number of them may read at the same time. A row costs a read of
// that row, except where outputs are rotated: there every row is made of all of them, and what is
// made at once, tens of megabytes of rows, is kept until a row outside it is asked for. So ask in
// ascending order.
class WeightRows {
 public:
  static constexpr int64_t kPanelBytes = int64_t{64} << 20;
  using OnSource = std::function<void(std::span<const std::byte>)>;

  // `on_source` sees the bytes of the source, each once and in order, provided that all rows are
  // read in ascending order. Rows of rotated outputs take `panel_bytes` of memory, or one row.
  WeightRows(const Model& model, const TrunkTensor& tensor, OnSource on_source = {},
             int64_t panel_bytes = kPanelBytes);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  // Whole rows from `first_row` on into `weights` [rows, cols]: computed in double, the floats
  // rounded once. Throws Error as decode_weight_row does.
  void read(int64_t first_row, std::span<float> weights) { read_as(first_row, weights); }
  void read(int64_t first_row, std::span<double> weights) { read_as(first_row, weights); }

  // The bytes of memory that a reader takes at most, for reads of `rows_at_once`.
  static int64_t memory_bytes(const TrunkTensor& tensor, int64_t rows_at_once);

 private:
  template <class Real>
  void read_as(int64_t first_row, std::span<Real> weights);
  template <class Use>
  void for_each_source_row(int64_t first_row, int64_t rows, bool show, const Use& use);
  void finish_row(std::span<double> row) const;
  void make_panels(int64_t first_panel);

  const TrunkTensor& tensor_;
  const File& shard_;
  OnSource on_source_;
  int64_t panel_bytes_;
  int64_t rows_;
  int64_t cols_;
  std::vector<std::byte> bytes_;
  std::vector<float> line_;
  std::vector<double> gain_;
  std::vector<RotationMatrix> inputs_, outputs_;  // one or none
  std::vector<double> panels_;                    // rows [made_begin_, made_end_)
  int64_t made_begin_ = 0;
  int64_t made_end_ = 0;
};

}  // namespace k3
