// Holds the gradients of an operation to differences of its reference.
//
// The reference returns floats, so a difference over a step h is off by about 2^-24 |y| / h from
// rounding and by h^2 / 6 of the third derivative. With values and steps of about 1 and 0.01 both
// stay below 1e-4 of a gradient's norm; a wrong term shows as far more than the 1e-3 allowed here.
#pragma once

#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/kernels/bit_equality.h"
#include "tests/kernels/exact_bits.h"

namespace k3 {

using Floats = std::vector<float>;

// |a - b| / |b|, Euclidean.
inline double relative_distance(const Floats& a, const Floats& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

// Central differences of the sum of gy * forward() over each value of `input`, which `forward`
// reads.
template <class Forward>
Floats numeric_gradient(Floats& input, const Floats& gy, double step, const Forward& forward) {
  const auto functional = [&] {
    const Floats y = forward();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(gy[i]) * y[i];
    return sum;
  };
  Floats gradient;
  for (float& value : input) {
    const float kept = value;
    const auto above = static_cast<float>(kept + step);
    const auto below = static_cast<float>(kept - step);
    value = above;
    const double high = functional();
    value = below;
    const double low = functional();
    value = kept;
    gradient.push_back(static_cast<float>(
        (high - low) / (static_cast<double>(above) - static_cast<double>(below))));
  }
  return gradient;
}

// backward(gradients) with gradients of these sizes, filled with `start`; all but `only` are null
// unless `only` is -1.
template <class Backward>
std::vector<Floats> run_backward(const std::vector<size_t>& sizes, float start, int only,
                                 const Backward& backward) {
  std::vector<Floats> gradients;
  std::vector<float*> pointers;
  for (const size_t size : sizes) gradients.emplace_back(size, start);
  for (size_t i = 0; i < sizes.size(); ++i) {
    pointers.push_back(only < 0 || only == static_cast<int>(i) ? gradients[i].data() : nullptr);
  }
  backward(pointers);
  return gradients;
}

// backward(gy, gradients) gives the gradients of forward() for `inputs`, adds them to what is
// there, and gives each alone, too.
template <class Forward, class Backward>
void check_gradients(const std::vector<Floats*>& inputs, const Forward& forward,
                     const Backward& backward, double step = 0.01) {
  const Floats gy = normal_values(std::ssize(forward()), 977);
  std::vector<size_t> sizes;
  for (const Floats* input : inputs) sizes.push_back(input->size());
  const auto with_gy = [&](const std::vector<float*>& gradients) { backward(gy, gradients); };
  const std::vector<Floats> gradients = run_backward(sizes, 0.0F, -1, with_gy);
  const std::vector<Floats> added = run_backward(sizes, 1.0F, -1, with_gy);
  for (size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE("gradient " + std::to_string(i));
    EXPECT_LT(relative_distance(gradients[i], numeric_gradient(*inputs[i], gy, step, forward)),
              1e-3);
    Floats one_more = gradients[i];
    for (float& value : one_more) value += 1.0F;
    EXPECT_LT(relative_distance(added[i], one_more), 1e-5);
    const std::vector<Floats> alone = run_backward(sizes, 0.0F, static_cast<int>(i), with_gy);
    EXPECT_TRUE(same_bits(alone[i], gradients[i]));
  }
}

// Of a case large enough to be shared out.
template <class Backward>
void expect_same_bits_on_any_threads(const std::vector<size_t>& sizes, const Backward& backward) {
  std::vector<Floats> alone;
  std::vector<Floats> shared;
  tbb::task_arena(1).execute([&] { alone = run_backward(sizes, 0.0F, -1, backward); });
  tbb::task_arena(2).execute([&] { shared = run_backward(sizes, 0.0F, -1, backward); });
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_TRUE(same_bits(shared[i], alone[i]));
}

}  // namespace k3
