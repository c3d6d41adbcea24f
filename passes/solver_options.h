// The knobs of the ternary solver, each default with its reason. All of them decide codes, so all
// of them belong into the key of a stored solution.
#pragma once

#include <cstdint>

namespace k3 {

struct SolverOptions {
  // Planes of trits: 1 is the format ternary, 2 is ternary2.
  int planes = 1;

  // Added to the diagonal before error feedback factors H, as a share of its mean. Codes saturate,
  // so error that is pushed on to inputs of little energy must stay small.
  double damping = 0.03;

  // Rounds of coordinate descent on the codes, each followed by a joint solve of the scales.
  int most_rounds = 6;
  // A round's sweeps end when fewer than this share of its codes changed in one, or after this
  // many.
  double settled_share = 1e-4;
  int most_sweeps = 15;

  // Steps of straight-through training after descent; 0 leaves it out. A step costs as much as two
  // sweeps that change every code, so it is for matrices that earn it.
  int training_steps = 0;
  // Adam's first step of a latent weight, relative to the row's standard deviation, and of a scale,
  // relative to itself. Ten times as much is worse, a tenth as much does not arrive.
  double latent_rate = 0.005;
  double scale_rate = 0.003;

  // How far the target moves from W to what undoes the error of the layers before, where a
  // cross-Gram is given: 1 is the least squares solution, 0 is W itself.
  double propagated_strength = 1;
  // Added to the diagonal of H in that least squares, as a share of its mean.
  double propagated_damping = 0.01;

  // Whether the error is measured after every step, or only at the end; two sweeps' time a step.
  bool measure_steps = true;
};

}  // namespace k3
