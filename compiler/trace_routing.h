// The choices of one or several routing traces in memory, token by token: what the statistics read.
//
// Ids alone: a trace of 131,000 tokens of K3 then takes 0.4 GB. Scores and norms are summed as they
// stream by, see passes/expert_scores.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schema/routing_trace.h"

namespace k3 {

struct RoutedToken {
  uint32_t document = 0;  // index into RoutingTable::documents
  uint32_t position = 0;
  TracePhase phase = TracePhase::kPrefill;
};

struct RoutingTable {
  TraceHeader header;                    // of the first trace
  std::vector<TraceDocument> documents;  // each text once
  std::vector<RoutedToken> tokens;       // those that every layer saw, in the order they ran
  std::vector<uint16_t> ids;             // [tokens, layers, k], ascending within a row
  int64_t incomplete_tokens = 0;         // left out, because some layer did not see them
  std::vector<std::string> cut;          // paths of traces that end early

  int64_t layers() const { return std::ssize(header.layers); }
  int64_t k() const { return header.experts_per_token; }
  std::span<const uint16_t> row(int64_t token, int64_t layer) const {
    return std::span(ids).subspan(static_cast<size_t>((token * layers() + layer) * k()),
                                  static_cast<size_t>(k()));
  }
};

// Reads the traces one after the other. Throws Error for damaged ones, for models of different
// shapes, and when no token is complete.
RoutingTable load_routing(std::span<const std::string> paths);

}  // namespace k3
