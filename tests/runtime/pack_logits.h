// What a pack computes, in short: for tests that compare packs or backends by their logits.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "runtime/generate.h"
#include "runtime/loaded_model.h"
#include "tests/runtime/packs.h"

namespace k3::test {

// The logits behind a prompt of two chunks, the second a single token.
inline std::vector<float> logits_of(const std::string& pack, const std::string& backend) {
  LoadedModel model(
      {.pack_path = pack_path(pack), .backend = backend, .chunk_tokens = std::ssize(kPrompt) - 1});
  SequenceState state(model.pack().config());
  generate(model.forward(), state, model.tokenizer(), kPrompt, {.max_new_tokens = 0}, [](auto) {});
  return state.last_logits;
}

// |a - b| / |b|.
inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double off = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    off += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(off / size);
}

}  // namespace k3::test
