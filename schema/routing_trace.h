// The .k3trace file: which experts each token chose and how strongly. k3exec writes it, k3c reads
// it. trace_format.md is the format; this header is its content as structs.
//
// A trace is a header and blocks. A block holds some consecutive tokens for some consecutive layers
// and stands alone: so traces are merged by appending blocks, a run that goes through the model
// layer by layer can write what it has, and a file that was cut loses no more than its last block.
// Inside a block each quantity lies together, because ids compress well and floats do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace k3 {

// The values are on disk. Append only.
enum class TracePhase : uint8_t { kPrefill = 0, kDecode = 1 };

// An id where fewer than k experts could be chosen; its score, weight and norm are 0.
inline constexpr uint16_t kNoExpert = 0xffff;

// As stored.
inline constexpr int64_t kMostExpertBytes = int64_t{1} << 40;

struct TraceHeader {
  uint64_t router_xxh3 = 0;       // of the model, see router_hash.h; 0: not known
  uint64_t payload_xxh3 = 0;      // of the pack that was run; 0: not known, or several
  int64_t expert_bytes = 0;       // of one expert as stored; 0: not known
  int64_t experts = 0;            // of a layer in the checkpoint, at most 65535
  int64_t experts_per_token = 0;  // k
  int64_t next_experts = 0;       // recorded beyond the chosen ones; 0: none
  bool has_weights = false;       // scores and weights were recorded
  bool has_norms = false;         // norms were recorded
  bool masked = false;            // some experts could not be chosen: left out of the pack, or by
                                  // a prune plan
  std::vector<uint32_t> layers = {};  // the model's layers that have experts, ascending

  friend bool operator==(const TraceHeader&, const TraceHeader&) = default;
};

// A text that tokens came from. The same text has the same hash in every trace.
struct TraceDocument {
  uint64_t xxh3 = 0;   // of the document's bytes
  std::string domain;  // what it belongs to, e.g. "calibration-prose"

  friend bool operator==(const TraceDocument&, const TraceDocument&) = default;
};

struct TraceToken {
  uint32_t document = 0;  // index into the block's documents
  uint32_t position = 0;  // in the sequence
  TracePhase phase = TracePhase::kPrefill;

  friend bool operator==(const TraceToken&, const TraceToken&) = default;
};

// Vectors of choices are [layers, tokens, k], those of the next experts [layers, tokens,
// next_experts]; what the header says was not recorded is empty.
struct TraceBlock {
  int64_t first_token = 0;  // of the trace
  int64_t first_layer = 0;  // index into the header's layers
  int64_t layers = 0;
  std::vector<TraceDocument> documents = {};
  std::vector<TraceToken> tokens = {};
  std::vector<uint16_t> ids = {};       // source ids, the highest selection score first
  std::vector<float> scores = {};       // without the selection bias
  std::vector<float> weights = {};      // as the experts were added with
  std::vector<float> norms = {};        // of each expert's output, before the weight
  std::vector<uint16_t> next_ids = {};  // the experts that came next in the selection
  std::vector<float> next_scores = {};

  friend bool operator==(const TraceBlock&, const TraceBlock&) = default;
};

// The number of choices that precede those of `token` (within the block) in layer `layer` (within
// the block), for rows of `width`.
inline size_t trace_row(const TraceBlock& block, int64_t layer, int64_t token, int64_t width) {
  return (static_cast<size_t>(layer) * block.tokens.size() + static_cast<size_t>(token)) *
         static_cast<size_t>(width);
}

// Translation to and from bytes; the reader and the writer add the file around them.

inline constexpr int64_t kTraceHeaderBytes = 64;  // without the list of layers
inline constexpr int64_t kTraceBlockHeaderBytes = 48;
inline constexpr int64_t kLargestTraceBlockBytes = int64_t{1} << 28;

// The header with its list of layers and its hash. Throws Error for more experts than ids can name.
std::vector<std::byte> encode_trace_header(const TraceHeader& header);

// How many bytes the whole header has, from its first kTraceHeaderBytes. Throws Error for what is
// no trace.
int64_t trace_header_bytes(std::span<const std::byte> fixed, const std::string& path);
TraceHeader decode_trace_header(std::span<const std::byte> bytes, const std::string& path);

// What lies in front of a block's compressed content.
struct TraceBlockHeader {
  int64_t first_token = 0;
  int64_t tokens = 0;  // 0: the end of the trace
  int64_t first_layer = 0;
  int64_t layers = 0;
  int64_t raw_bytes = 0;
  int64_t stored_bytes = 0;
  uint64_t xxh3 = 0;  // of the compressed bytes
};

void encode_block_header(const TraceBlockHeader& header,
                         std::span<std::byte, kTraceBlockHeaderBytes> dst);
// False when the bytes are not a block header: damaged, or cut inside.
bool decode_block_header(std::span<const std::byte, kTraceBlockHeaderBytes> src,
                         TraceBlockHeader& header);

// A block's content before compression. K3_CHECKs that the vectors have the sizes that the header
// asks for.
std::vector<std::byte> encode_trace_block(const TraceHeader& header, const TraceBlock& block);
// `subject` starts the messages. Throws Error when sizes, documents or ids do not fit.
TraceBlock decode_trace_block(const TraceHeader& header, const TraceBlockHeader& place,
                              std::span<const std::byte> raw, const std::string& subject);

}  // namespace k3
