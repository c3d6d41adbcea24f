// Several observers of one run.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/generate.h"

namespace k3 {

// Passes on to each of its list, in order, what each wants. They must outlive it.
class Observers final : public RunObserver {
 public:
  explicit Observers(std::vector<RunObserver*> list) : list_(std::move(list)) {}

  bool wants_logits() const override { return any(&RunObserver::wants_logits); }
  bool wants_experts() const override { return any(&RunObserver::wants_experts); }
  void on_layer(int64_t layer, int64_t tokens, const float* hidden) override {
    for (RunObserver* each : list_) each->on_layer(layer, tokens, hidden);
  }
  void on_routing(int64_t layer, int64_t tokens, const int32_t* source_ids,
                  const float* weights) override {
    for (RunObserver* each : list_) each->on_routing(layer, tokens, source_ids, weights);
  }
  void on_branch(int64_t layer, Branch branch, int64_t tokens, const float* y) override {
    for (RunObserver* each : list_) each->on_branch(layer, branch, tokens, y);
  }
  void on_matrix_input(int64_t layer, MatrixInput input, int64_t tokens, int64_t width,
                       int64_t stride, const float* x) override {
    for (RunObserver* each : list_) each->on_matrix_input(layer, input, tokens, width, stride, x);
  }
  void on_experts(const RoutedTokens& routed) override {
    for (RunObserver* each : list_) {
      if (each->wants_experts()) each->on_experts(routed);
    }
  }
  void on_logits(int64_t tokens, const float* logits) override {
    for (RunObserver* each : list_) {
      if (each->wants_logits()) each->on_logits(tokens, logits);
    }
  }

 private:
  bool any(bool (RunObserver::*wants)() const) const {
    return std::any_of(list_.begin(), list_.end(),
                       [&](const RunObserver* each) { return (each->*wants)(); });
  }

  std::vector<RunObserver*> list_;
};

}  // namespace k3
