#include "passes/matrix_loss.h"

#include <cmath>
#include <cstdio>

namespace k3 {
namespace {

void append(std::string& text, double value) {
  text += '\t';
  if (std::isnan(value)) {
    text += '-';
    return;
  }
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.6g", value);
  text += digits.data();
}

}  // namespace

std::string format_losses(std::span<const NamedLoss> losses) {
  std::string text =
      "tensor\tformat\tstored_bits\tfit\tselect\tbound\tgap_bits\trho\tn_over_d\tridge\tpropagated";
  for (const std::string_view step : kSolverSteps) {
    for (const std::string_view half : {" fit", " select"}) {
      text += '\t';
      text += step;
      text += half;
    }
  }
  text += '\n';
  for (const NamedLoss& row : losses) {
    const MatrixLoss& loss = row.loss;
    text += row.name;
    text += '\t';
    text += format_name(row.format);
    for (const double value : {loss.stored_bits, loss.fit, loss.select, loss.bound, loss.gap_bits,
                               loss.flatness, loss.samples, loss.ridge, loss.propagated}) {
      append(text, value);
    }
    for (size_t step = 0; step < kSolverSteps.size(); ++step) {
      append(text, loss.step_fit[step]);
      append(text, loss.step_select[step]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace k3
