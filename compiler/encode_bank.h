// Encodes routed experts one at a time, from the checkpoint's tensors to the extent.
#pragma once

#include <cstdint>

#include "compiler/encode_journal.h"
#include "compiler/pack_writer.h"
#include "passes/model.h"
#include "schema/aligned_bytes.h"

namespace k3 {

// One worker's encoder.
class ExpertEncoder {
 public:
  // All must outlive the encoder. Sources are read into `buffer`, which between calls is free for
  // other uses.
  ExpertEncoder(const Model& model, const PackWriter& writer, AlignedBytes& buffer)
      : model_(model), writer_(writer), source_(buffer) {}

  // Reads the six (three) tensors of `expert`, moves them into bands and writes its extent. Throws
  // Error for scales that the exact sums cannot hold.
  EncodedItem encode(const Bank& bank, const Expert& expert);

  // The row bound of an expert that the pack leaves out: only what it takes is read.
  double bound_left_out(const Bank& bank, const Expert& expert);

  // The bytes of memory that this model's experts take at most, `buffer` included.
  static int64_t buffer_bytes(const Model& model);

 private:
  const Model& model_;
  const PackWriter& writer_;
  AlignedBytes& source_;
  AlignedBytes band_;
};

// The bytes that an expert's tensors have in the checkpoint.
int64_t expert_source_bytes(const Expert& expert);

}  // namespace k3
