// A .k3sens file: what it costs to swap trunk matrices of one pack for their forms in others,
// measured as KL on calibration text. `k3exec sensitivity` writes it, `k3c compile --trunk auto`
// spends it. The layout, a JSON object, is in schema/README.md.
//
// Bits hurt where the model is sensitive, and no error of a matrix by itself tells where that is:
// on nano, matrices of equal output error differ in KL by a factor of a hundred. So the ladder
// stands on measurements of the whole model with one matrix changed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/family.h"
#include "schema/format.h"

namespace k3 {

struct SensitivityText {
  std::string name;   // the file's base name without extension
  uint64_t xxh3 = 0;  // of the file's bytes
};

// A pack whose forms of the matrices were tried.
struct SensitivityCandidate {
  std::string name;  // the file's base name without extension
  uint64_t payload_xxh3 = 0;
};

// All KLs are means over the positions, KL(base || swapped) in nats, never negative.

// One matrix in the form that one candidate has it in.
struct MatrixSwap {
  int64_t candidate = 0;  // index into Sensitivity::candidates
  Format format = Format::kBf16;
  uint64_t extent_xxh3 = 0;  // of its bytes in the candidate
  double kl = 0;
};

struct MatrixSensitivity {
  std::string name;  // in the pack, e.g. model.layers.7.self_attn.g_proj.weight
  Family family = Family::kKda;
  uint64_t source_xxh3 = 0;       // of its bytes in the checkpoint
  Format format = Format::kBf16;  // in the base
  std::vector<MatrixSwap> swaps;  // no two of one format, none of the base's
};

// All matrices at once that a candidate has in another form, of one family or of the whole trunk.
struct JointSwap {
  int64_t candidate = 0;
  int64_t matrices = 0;
  double kl = 0;
  double single_kl = 0;  // the sum of what the same matrices cost one by one
};

struct FamilySwap {
  Family family = Family::kKda;
  JointSwap swap;
};

struct Sensitivity {
  uint64_t base_payload_xxh3 = 0;
  std::vector<SensitivityText> texts;
  int64_t window_tokens = 0;
  int64_t positions = 0;
  std::vector<SensitivityCandidate> candidates;
  std::vector<MatrixSensitivity> matrices;  // in the order of the pack's tensors
  std::vector<FamilySwap> families;
  std::vector<JointSwap> whole;  // one per candidate, in their order
  uint64_t file_xxh3 = 0;        // of the file it was read from

  const MatrixSensitivity* find(std::string_view matrix) const;  // null when it was not measured
};

// The file's bytes; the same measurements give the same bytes.
std::string sensitivity_text(const Sensitivity& sensitivity);

// Reads and checks a .k3sens file. Throws Error for what is no such file, for a number that no
// measurement gives, and for names and formats that stand there twice.
Sensitivity read_sensitivity(const std::string& path);

}  // namespace k3
