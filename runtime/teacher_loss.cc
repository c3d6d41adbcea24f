#include "runtime/teacher_loss.h"

#include <tbb/parallel_for.h>

#include <cmath>

#include "runtime/divergence.h"
#include "schema/error.h"

namespace k3 {

TeacherLoss::TeacherLoss(LayerwiseModel& teacher, Windows windows)
    : teacher_(teacher), windows_(windows) {
  WindowPass pass(teacher, windows);
  pass.run_layers({});
  teacher_.hold_output();
  for (int64_t window = 0; window < pass.windows(); ++window) {
    const int64_t tokens = pass.tokens(window);
    const float* x = teacher_.forward().finish(tokens, pass.stream(window), nullptr);
    head_inputs_.emplace_back(x, x + tokens * teacher_.config().hidden_size);
    tokens_ += tokens;
  }
}

double TeacherLoss::operator()(int64_t window, std::span<const float> logits,
                               std::span<float> gradient) {
  const std::vector<float>& x = head_inputs_[static_cast<size_t>(window)];
  const auto vocab = static_cast<size_t>(teacher_.config().vocab_size);
  const size_t tokens = x.size() / static_cast<size_t>(teacher_.config().hidden_size);
  K3_CHECK(logits.size() == tokens * vocab && teacher_.weights().final_norm != nullptr);
  wanted_.resize(logits.size());
  teacher_.forward().multiply_head(x.data(), static_cast<int64_t>(tokens), wanted_.data());
  std::vector<double> losses(tokens);
  tbb::parallel_for(size_t{0}, tokens, [&](size_t t) {
    const std::span<const float> p = std::span(wanted_).subspan(t * vocab, vocab);
    const std::span<const float> q = logits.subspan(t * vocab, vocab);
    const double p_lse = log_sum_exp(p);
    const double q_lse = log_sum_exp(q);
    losses[t] = divergence(p, p_lse, q, q_lse);
    if (gradient.empty()) return;
    for (size_t i = 0; i < vocab; ++i) {
      gradient[t * vocab + i] = static_cast<float>((std::exp(static_cast<double>(q[i]) - q_lse) -
                                                    std::exp(static_cast<double>(p[i]) - p_lse)) /
                                                   static_cast<double>(tokens_));
    }
  });
  double sum = 0;
  for (double loss : losses) sum += loss;
  return sum;
}

}  // namespace k3
