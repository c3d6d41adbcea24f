#include "runtime/layer_jacobian.h"

#include <cmath>
#include <vector>

namespace k3 {
namespace {

// Of a value's typical size: small against the curvature, and large against float's 6e-8.
constexpr double kStep = 1e-2;

using Vector = std::vector<double>;

double norm(const Vector& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

// The state of one token as one vector: the stream, then its snapshots.
Vector flatten(const ResidualStream& stream, int64_t hidden) {
  Vector values(stream.prefix.begin(), stream.prefix.begin() + hidden);
  for (int64_t i = 0; i < stream.live_snapshots; ++i) {
    const std::vector<float>& snapshot = stream.snapshots[static_cast<size_t>(i)];
    values.insert(values.end(), snapshot.begin(), snapshot.begin() + hidden);
  }
  return values;
}

// The largest singular value of the matrix with these columns, by power iteration on J' J.
double largest_singular_value(const std::vector<Vector>& columns) {
  constexpr int kMostSteps = 200;
  constexpr double kSettled = 1e-6;
  Vector x(columns.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1 + 0.1 * static_cast<double>(i % 7);
  double value = 0;
  for (int step = 0; step < kMostSteps; ++step) {
    const double size = norm(x);
    if (size == 0) return 0;
    Vector y(columns.front().size());
    for (size_t i = 0; i < columns.size(); ++i) {
      for (size_t j = 0; j < y.size(); ++j) y[j] += columns[i][j] * (x[i] / size);
    }
    const double next = norm(y);
    for (size_t i = 0; i < columns.size(); ++i) {
      x[i] = 0;
      for (size_t j = 0; j < y.size(); ++j) x[i] += columns[i][j] * y[j];
    }
    if (std::abs(next - value) <= kSettled * next) return next;
    value = next;
  }
  return value;
}

}  // namespace

double worst_growth(LayerwiseModel& model, int64_t layer, const ResidualStream& stream,
                    int64_t token) {
  const int64_t hidden = model.config().hidden_size;
  LayerState before = fresh_layer_state(model.config(), layer);
  if (token > 0) {
    ResidualStream prompt = stream;
    model.forward().run_layer(layer, token, prompt, 0, before, nullptr);
  }
  ResidualStream one = model.forward().make_stream();
  one.live_snapshots = stream.live_snapshots;
  const auto row = [&](const std::vector<float>& from, std::vector<float>& to) {
    std::copy_n(from.begin() + token * hidden, hidden, to.begin());
  };
  row(stream.prefix, one.prefix);
  for (int64_t i = 0; i < one.live_snapshots; ++i) {
    row(stream.snapshots[static_cast<size_t>(i)], one.snapshots[static_cast<size_t>(i)]);
  }
  const auto run = [&](ResidualStream in) {
    LayerState state = before;
    model.forward().run_layer(layer, 1, in, token, state, nullptr);
    return flatten(in, hidden);
  };
  const Vector s = flatten(one, hidden);
  const Vector f = run(one);
  std::vector<Vector> columns;
  for (int64_t part = 0; part <= one.live_snapshots; ++part) {
    const auto values = [&](ResidualStream& of) -> std::vector<float>& {
      return part == 0 ? of.prefix : of.snapshots[static_cast<size_t>(part - 1)];
    };
    double squares = 0;
    for (int64_t i = 0; i < hidden; ++i) {
      const double value = values(one)[static_cast<size_t>(i)];
      squares += value * value;
    }
    const double step = kStep * std::sqrt(squares / static_cast<double>(hidden));
    if (step == 0) continue;  // nothing there to be off
    for (int64_t i = 0; i < hidden; ++i) {
      const auto at = static_cast<size_t>(i);
      ResidualStream up = one;
      ResidualStream down = one;
      values(up)[at] = static_cast<float>(values(up)[at] + step);
      values(down)[at] = static_cast<float>(values(down)[at] - step);
      const double width = static_cast<double>(values(up)[at]) - values(down)[at];
      const Vector above = run(std::move(up));
      Vector column = run(std::move(down));
      for (size_t j = 0; j < column.size(); ++j) column[j] = (above[j] - column[j]) / width;
      columns.push_back(std::move(column));
    }
  }
  return largest_singular_value(columns) * norm(s) / norm(f);
}

}  // namespace k3
