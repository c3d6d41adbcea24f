// `k3c trace import`: routing recorded by other programs, as a trace.
//
// JSON lines, one token each: {"tok": n, "layers": [[ids], ...]}, with a list of source ids per
// layer that has experts. There are no weights or norms in it, so such a trace can count, but not
// judge.
#pragma once

#include <cstdint>
#include <string>

namespace k3 {

struct TraceImportRequest {
  std::string json_lines;
  std::string output;
  std::string pack = {};     // of the model that was traced; empty: unknown
  int64_t experts = 0;       // of a layer, without a pack; 0: the largest id and one
  int64_t expert_bytes = 0;  // 0: the pack's, or unknown
};

// Throws Error naming the line for what is not of that form, and when lines differ in layers or
// choices, or do not fit the pack. Returns the number of tokens.
int64_t import_trace(const TraceImportRequest& request);

}  // namespace k3
