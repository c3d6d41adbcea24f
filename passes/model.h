// The Model: a checkpoint as the compiler sees it, and the plan for what becomes of it.
//
// The importer in compiler/ fills in the sources, passes set the plan fields, encode and the writer
// read both. No pass holds or writes a whole tensor: values that a pass must look at are streamed
// through Model::shards.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "passes/rotation.h"
#include "schema/dtype.h"
#include "schema/extent.h"
#include "schema/family.h"
#include "schema/file.h"
#include "schema/format.h"
#include "schema/layout.h"
#include "schema/model_config.h"
#include "schema/shape.h"
#include "schema/tuning.h"

namespace k3 {

// What folding makes of a tensor W [rows, cols] before it is stored: outputs W diag(gain) inputs^T,
// or ones where its own values have been folded into others. Absent parts change nothing. A vector
// counts as one row.
struct Folding {
  std::optional<size_t> gain;       // index into Model::trunk: norm gains [cols]
  std::optional<Rotation> inputs;   // of width cols
  std::optional<Rotation> outputs;  // of width rows
  bool is_folded_away = false;

  bool changes_values() const { return gain || inputs || outputs || is_folded_away; }
};

// Where a tensor's bytes lie in the checkpoint.
struct Source {
  int32_t shard = 0;         // index into Model::shards
  int64_t offset_bytes = 0;  // from the start of the file
  int64_t length_bytes = 0;
};

struct TrunkTensor {
  std::string name;  // without the family's prefix
  Family family = Family::kNorm;
  Dtype dtype = Dtype::kBf16;
  Shape shape;
  Source source;
  bool may_quantize = false;  // a matrix whose output error is measured, not one that must stay
                              // exact (routers, norms, ...)

  // The plan
  Folding folding;
  Format format = Format::kBf16;
  Layout layout = Layout::kRowMajor;
  std::optional<uint64_t> solution;  // where its codes lie in the work folder (SolutionStore), when
                                     // they were solved and not rounded
  Extent extent;                     // offset and length by assign_offsets, hash by encode
  uint64_t source_xxh3 = 0;          // by encode
  std::optional<int64_t> tuned;      // its tensor in Model::tuning, which has its scales or gain
  std::optional<int64_t> tuned_codes;  // likewise its codes, where they are not the pack's own
  uint64_t untuned_xxh3 = 0;           // by encode: of the extent as it would be without its tuning
};

struct Expert {
  int32_t source_id = 0;
  // mxfp4: w1 codes, w1 scales, w2 codes, w2 scales, w3 codes, w3 scales, the checkpoint's order.
  // bf16: w1, w2, w3, and three empty ones.
  std::array<Source, 6> sources;

  // The plan
  bool cold = false;  // dropped by prune_experts, but kept in the pack
  Extent extent;
  uint64_t source_xxh3 = 0;                    // of the six, in order; by encode
  std::array<uint8_t, 3> least_exponent = {};  // by ExpertMatrix; by encode
};

struct Bank {
  int64_t layer = 0;
  Format source_format = Format::kMxfp4;
  int64_t source_experts = 0;
  std::vector<Expert> experts;   // those in the pack, in its order: cold ones last
  std::vector<Expert> left_out;  // the others: F_L bounds every expert of the source, so that it
                                 // does not depend on which are kept

  // The plan
  Format format = Format::kMxfp4;
  Layout layout = Layout::kExpertBands;
  int32_t fixed_point = 0;  // F_L, see pack_index.h; by encode
};

// A small file that the runtime needs, e.g. tiktoken.model.
struct SideFile {
  std::string name;
  std::vector<std::byte> bytes;

  // The plan
  std::vector<std::byte> compressed;
  Extent extent;
};

// Tensors of the checkpoint that the pack leaves out on purpose, counted per family.
struct Dropped {
  Family family = Family::kVision;
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;
};

struct Model {
  ModelConfig config;
  std::string family;         // the row of the families table: "kimi-k3"
  std::string source_prefix;  // what canonical names lack, e.g. "language_model."
  std::vector<std::shared_ptr<const File>> shards;
  std::vector<TrunkTensor>
      trunk;  // embeddings and head included; layer order, then the checkpoint's name order
  std::vector<Bank> banks;  // ascending layer
  std::vector<SideFile> side_files;
  std::vector<Dropped> dropped;
  std::shared_ptr<const TuningReader> tuning;  // null when nothing is tuned
};

}  // namespace k3
