// The index of a pack as plain structs, the form in which both programs handle it.
// schema/pack_decode.cc and compiler/pack_encode.cc translate it from and to the FlatBuffer of
// pack.fbs; nobody else names FlatBuffers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schema/extent.h"
#include "schema/family.h"
#include "schema/format.h"
#include "schema/layout.h"
#include "schema/model_config.h"
#include "schema/shape.h"

namespace k3 {

struct PackTensor {
  std::string name;  // the checkpoint's name without the family's prefix, e.g.
                     // model.layers.7.self_attn.g_proj.weight
  Family family = Family::kNorm;
  Format format = Format::kBf16;
  Layout layout = Layout::kRowMajor;
  Shape shape;
  Extent extent;
};

struct PackExpert {
  Extent extent;
  uint32_t source_id = 0;                      // the expert's number in the checkpoint
  std::array<uint8_t, 3> least_exponent = {};  // by ExpertMatrix; mxfp4: least E8M0 byte of a group
                                               // that is not all zero, 0 if there is none
  bool cold = false;  // lies in the cold section: routed to only under --missing fetch
};

struct PackBank {
  int64_t layer = 0;
  Format format = Format::kMxfp4;
  Layout layout = Layout::kExpertBands;
  int64_t source_experts = 0;  // experts of this layer in the checkpoint
  int32_t fixed_point =
      0;  // F_L of the numeric contract: expert outputs are added as integers of 2^-F_L
  std::vector<PackExpert> experts;  // cold ones last
};

// The bank's experts that tokens are routed to, whatever is asked for: all but the cold ones.
inline std::span<const PackExpert> hot_experts(const PackBank& bank) {
  const auto end = std::find_if(bank.experts.begin(), bank.experts.end(),
                                [](const PackExpert& expert) { return expert.cold; });
  return {bank.experts.begin(), end};
}

// Where the matrices of the bank's experts lie in their extents.
inline ExpertBands bank_bands(const ModelConfig& config, const PackBank& bank) {
  return {bank.format, config.expert_width(), config.expert_intermediate_size, bank.layout};
}

// And where once they are in memory: kernels read scales as bytes (compact_scales.h).
inline ExpertBands resident_bands(const ModelConfig& config, const PackBank& bank) {
  return {bank.format, config.expert_width(), config.expert_intermediate_size};
}

struct PackSideFile {
  std::string name;
  int64_t raw_bytes = 0;
  Extent extent;
};

struct PackContent {
  ModelConfig config;
  std::vector<PackTensor> tensors;
  std::vector<PackBank> banks;
  std::vector<PackSideFile> side_files;
};

struct PassRecord {
  std::string name;
  std::vector<std::pair<std::string, double>> numbers;
};

struct PackReport {
  std::string name;
  int64_t raw_bytes = 0;
  Extent extent;
};

// A report is a zstd frame unless its extent has exactly as many bytes as its content.
inline bool is_stored_raw(const PackReport& report) {
  return report.raw_bytes == report.extent.length_bytes;
}

struct PackProvenance {
  std::string compiler;
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<PassRecord> passes;
  std::vector<PackReport> reports;
};

struct PackReceipt {
  std::string kind;
  uint64_t payload_xxh3 = 0;
  std::string text;
};

struct PackIndex {
  PackContent content;
  PackProvenance provenance;
  std::vector<PackReceipt> receipts;
  std::vector<Extent> retired;  // earlier indexes, kept in place by `k3c attach`
};

}  // namespace k3
