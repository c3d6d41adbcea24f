// Error feedback: chooses codes input by input and makes good each error by what follows.
//
// Known as LDLQ or GPTQ (arXiv 2307.13304, 2210.17323), here with the levels of a ternary format.
// Inputs go by descending energy, so that those that matter most are made good by all others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "passes/row_block.h"

namespace k3 {

class ErrorFeedback {
 public:
  // Orders and factors H + r I, on all threads, with a ridge above 0 (which may differ from the
  // loss's). gram is [cols, cols] and may go after this. Holds one matrix of that size.
  ErrorFeedback(std::span<const float> gram, int64_t cols, double ridge);

  // Chooses all codes of the block for the scales it has. Groups of scale 0 get zeros. The slopes
  // are no longer true. Returns the multiply-adds spent in products.
  double choose_codes(RowBlock& block) const;

 private:
  int64_t cols_;
  std::vector<int64_t> order_;   // by place: the input, ascending energy
  std::vector<float> feedback_;  // [place, place]: row i moves the targets of places below i
};

}  // namespace k3
