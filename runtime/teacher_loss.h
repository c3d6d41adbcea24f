// KL(teacher || student) of windows, with its gradient.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/layerwise_model.h"
#include "runtime/window_pass.h"

namespace k3 {

class TeacherLoss {
 public:
  // Runs the teacher on the windows, which must outlive this, and keeps what its head reads:
  // [tokens, hidden] of each, where the logits would be many times that. The teacher is left
  // holding its output, which all losses of one teacher then share.
  TeacherLoss(LayerwiseModel& teacher, Windows windows);

  Windows windows() const { return windows_; }
  int64_t tokens() const { return tokens_; }

  // The sum over the window's tokens of KL(teacher || student), in nats, for the student's logits
  // [tokens, vocab]. `gradient`, of the same shape unless it is empty, becomes that of the mean
  // over all windows' tokens.
  double operator()(int64_t window, std::span<const float> logits, std::span<float> gradient);

 private:
  LayerwiseModel& teacher_;
  Windows windows_;
  int64_t tokens_ = 0;  // of all windows
  std::vector<std::vector<float>> head_inputs_;
  std::vector<float> wanted_;  // logits
};

}  // namespace k3
