// What a quantized matrix costs, measured on calibration, and what it had to cost: the pack's
// report "trunk_errors".
//
// Every error is sqrt(tr(E H E^T) / tr(W H W^T)), the share of the output's amplitude that is lost
// on the documents whose H it is.
#pragma once

#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "schema/format.h"

namespace k3 {

// The solver's steps in the order of work; "stored" is what the pack holds.
inline constexpr std::array<std::string_view, 7> kSolverSteps = {
    "rounding", "exact scale", "feedback", "descent", "annealed", "trained", "stored"};

// All numbers are doubles, NaN where nothing was measured, so that the work folder can keep them as
// they are.
struct MatrixLoss {
  double stored_bits = 0;  // bytes x 8 / weights, side data included
  double fit = 0;          // on the documents that were solved for
  double select = 0;       // on those that were not
  double bound = 0;        // the least error at stored_bits (water_filling.h)
  double gap_bits = 0;     // stored_bits - the least bits for the select error
  double flatness = 0;     // rho of H's spectrum
  double samples = 0;      // fit tokens per input channel, n / d
  double ridge = 0;        // that the solver added to H's diagonal, as a share of its mean
  double propagated = 0;   // 1 when solved for the inputs of a compressed model
  std::array<double, kSolverSteps.size()> step_fit = {};     // by kSolverSteps
  std::array<double, kSolverSteps.size()> step_select = {};  // by kSolverSteps

  // The error to report: on select documents, or where there are none on fit documents.
  double held_out() const { return std::isnan(select) ? fit : select; }
};

struct NamedLoss {
  std::string name;
  Format format = Format::kTernary;
  MatrixLoss loss;
};

// Text: a header line, then a line per matrix, fields separated by tabs, "-" for NaN; numbers with
// six significant digits.
std::string format_losses(std::span<const NamedLoss> losses);

}  // namespace k3
