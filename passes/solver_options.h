// The knobs of the ternary solver, each default with its reason. All of them decide codes, so all
// of them belong into the key of a stored solution.
#pragma once

namespace k3 {

struct SolverOptions {
  // Planes of trits: 1 is the format ternary, 2 is ternary2.
  int planes = 1;

  // Added to the diagonal of H in every step, as a share of its mean: what is left to chance by a
  // Gram matrix of finitely many tokens. It costs error on those and saves it on others; how much
  // is right depends on the spectrum and the number of tokens, so choose_ridge measures it.
  double ridge = 0.02;

  // Added to the diagonal on top of that where error feedback factors H, as a share of its mean.
  // Codes saturate, so error that is pushed on to inputs of little energy must stay small.
  double damping = 0.01;

  // Rounds of coordinate descent on the codes, each followed by a joint solve of the scales.
  int most_rounds = 4;
  // In a round a row is swept until at most this share of its codes changes, or this many times.
  double settled_share = 1e-4;
  int most_sweeps = 15;

  // Sweeps of descent with noise that dies out, and the temperature they start from in units of a
  // row's loss per weight. A hundred sweeps take 1 to 3 % off the error, a thousand 2 to 6 %; at
  // five times the heat descent forgets what it has found.
  int annealing_sweeps = 60;
  double annealing_heat = 0.2;

  // Steps of straight-through training after that; 0 leaves it out, because annealing brings more
  // for less: a step costs a product of all rows with H, an annealing sweep a tenth of one.
  int training_steps = 0;
  // Adam's first step of a latent weight, relative to the row's standard deviation, and of a scale,
  // relative to itself. From where descent ended, five times as much loses more than it finds.
  double latent_rate = 0.001;
  double scale_rate = 0.001;

  // How far the target moves from W to what undoes the error of the layers before, where a
  // cross-Gram is given: 1 is the least squares solution, 0 is W itself. Each layer would undo
  // alone what those before it undo too, and the errors it sees are of the pack that was captured,
  // not of the one that is made: on nano 1 costs more KL than it saves, a half saves most.
  double propagated_strength = 0.5;
  // Added to the diagonal of H in that least squares, as a share of its mean.
  double propagated_damping = 0.01;

  // Whether the error is measured after every step, or only at the end.
  bool measure_steps = true;
};

}  // namespace k3
