// Tunes a compressed model's block scales and norm gains against the logits of the model it was
// compressed from, end to end, its codes as they are.
//
// What is minimised is the KL of the teacher's predictions to the student's, over the whole
// vocabulary and every position: the number that the result is judged by, on other text.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/layerwise_model.h"
#include "runtime/model_gradient.h"
#include "runtime/teacher_loss.h"

namespace k3 {

struct TuneSchedule {
  int64_t steps = 105;
  int64_t step_tokens = 2048;
  // Of a parameter relative to its size, in one step at most, or so; falls to nothing by half a
  // cosine. 0.03 gave nano the same.
  double learning_rate = 0.01;
  // Of what a code is rounded from, in steps between two codes. At 0.005 hardly any code of nano
  // changed in 40 steps; at 0.05 they changed faster than the rest could follow, for the worse.
  double code_rate = 0.02;
};

// What one step saw.
struct TuneStep {
  int64_t step = 0;  // from 1
  double kl = 0;     // nats a token, of the step's windows before its change
};

// Lets each code lean towards the teacher's weight, as far as that is from where it stands: it then
// changes the sooner, the less the change costs. Throws Error when the teacher's weights have other
// coordinates.
void lean_codes(ModelGradient& student, LayerwiseModel& teacher);

// Adam (Kingma and Ba, 2015) on `windows`, shuffled and gone round as often as the schedule needs.
// The result is the student's parameters. Bits do not depend on the number of threads. Throws
// Error, also when a step leaves a model without finite streams, predictions or gradients.
void tune_parameters(ModelGradient& student, LayerwiseModel& teacher, Windows windows,
                     const TuneSchedule& schedule,
                     const std::function<void(const TuneStep&)>& on_step);

// The mean KL(teacher || student) of the loss' windows, in nats a token. Throws Error when it is
// not finite.
double mean_divergence(ModelGradient& student, TeacherLoss& loss);

}  // namespace k3
