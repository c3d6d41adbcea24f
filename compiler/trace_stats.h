// What routing traces say about a model: how uneven experts are used, how much the most used ones
// cover, also of text they were not chosen on, and how much of a token's choice the token before
// had.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/trace_routing.h"

namespace k3 {

// How unevenly experts are used: of one layer, or the mean over layers.
struct LoadSkew {
  double used = 0;             // experts that some token chose
  double hottest_to_mean = 0;  // choices of the most chosen expert over the mean of all
  double gini = 0;             // 0 even, towards 1 for all on one
  double effective = 0;        // 2^entropy: as many even experts would spread the same
  double reuse = 0;            // share of a token's choice that the token before it had; of tokens
                               // that follow one in their sequence
};

// From choices per expert; `reuse` is left 0.
LoadSkew measure_skew(std::span<const int64_t> chosen);

// The share of choices that falls on the `top` most chosen experts of each layer.
struct Coverage {
  int64_t top = 0;       // experts of each layer
  double in_sample = 0;  // of the tokens that they were chosen by
  double held_out = 0;   // of other tokens
  double all_kept = 0;   // share of held-out (token, layer) with every choice among them
};

// Experts chosen by the tokens of one domain, measured on another.
struct DomainCoverage {
  std::string chosen_on;
  std::string tested_on;
  double covered = 0;
};

struct TraceStats {
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t decoded_tokens = 0;
  std::string split;  // what was held out, in words
  LoadSkew overall;   // means over layers
  std::vector<LoadSkew> layers;
  std::vector<Coverage> coverage;
  int64_t domain_top = 0;               // experts of each layer in `domains`
  std::vector<DomainCoverage> domains;  // every pair; empty with one domain
  std::vector<double> load_curve;       // by rank within a layer: mean share of choices
};

// `held_out` may be null; then every other document is held out, or the later half of the tokens if
// there is one document. Both tables are of one model (K3_CHECK).
TraceStats measure_routing(const RoutingTable& table, const RoutingTable* held_out);

}  // namespace k3
