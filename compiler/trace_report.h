// `k3c trace stats`: what routing traces say, as tables, JSON or charts.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace k3 {

struct TraceStatsRequest {
  std::vector<std::string> traces;
  std::vector<std::string> held_out = {};  // traces to test choices on; empty: a part of `traces`
  std::vector<double> cache_gb =
      {};                       // sizes to replay, in 10^9 bytes; empty: shares of all experts
  int64_t expert_bytes = 0;     // 0: what the trace says
  int64_t replay_tokens = 0;    // at most so many; 0: none
  std::string svg_folder = {};  // empty: no charts
  bool json = false;
};

// Throws Error for traces that cannot be read, that are of different models, or whose expert size
// is neither recorded nor given where it is needed.
void run_trace_stats(const TraceStatsRequest& request, std::ostream& out);

}  // namespace k3
