#include "runtime/gradient_tape.h"

#include <gtest/gtest.h>

#include <array>

namespace k3 {
namespace {

using Row = std::array<float, 4>;

GradientTape make_tape() {
  return GradientTape(make_backend("reference"));
}

void set(std::span<float> gradient, float value) {
  std::ranges::fill(gradient, value);
}

Row gradient_of(GradientTape& tape, const Row& values) {
  Row copy;
  std::ranges::copy(tape.gradient(values.data(), std::ssize(values)), copy.begin());
  return copy;
}

TEST(GradientTape, AddsUpWhatSeveralReadersGiveAValue) {
  GradientTape tape = make_tape();
  const Row a = {1, 2, 3, 4};
  Row b;
  Row c;
  tape.start();
  tape.copy(a.data(), sizeof a, b.data());
  tape.add(a.data(), b.data(), 4, c.data());
  set(tape.gradient(c.data(), 4), 3);
  tape.play_back();
  EXPECT_EQ(gradient_of(tape, a), (Row{6, 6, 6, 6}));
  EXPECT_EQ(gradient_of(tape, b), (Row{0, 0, 0, 0}));  // it was taken by the copy
}

TEST(GradientTape, AValueThatWasWrittenOverHasTheGradientOfItsOwnTime) {
  GradientTape tape = make_tape();
  const Row a = {1, 2, 3, 4};
  const Row b = {5, 6, 7, 8};
  Row buffer;
  Row sum = {};
  tape.start();
  tape.copy(a.data(), sizeof a, buffer.data());
  tape.add(sum.data(), buffer.data(), 4, sum.data());
  tape.copy(b.data(), sizeof b, buffer.data());  // a is gone
  tape.add(buffer.data(), buffer.data(), 4, buffer.data());
  set(tape.gradient(sum.data(), 4), 1);
  set(tape.gradient(buffer.data(), 4), 10);
  tape.play_back();
  EXPECT_EQ(gradient_of(tape, a), (Row{1, 1, 1, 1}));
  EXPECT_EQ(gradient_of(tape, b), (Row{20, 20, 20, 20}));
}

TEST(GradientTape, PartsAndWholeOfOneBufferShareTheirGradients) {
  GradientTape tape = make_tape();
  const Row a = {1, 2, 3, 4};
  Row whole;
  Row out;
  tape.start();
  tape.copy(a.data(), 8, whole.data());
  tape.copy(a.data() + 2, 8, whole.data() + 2);
  tape.copy(whole.data() + 1, 8, out.data());  // across both
  std::ranges::copy(std::array{1.0F, 2.0F}, tape.gradient(out.data(), 2).begin());
  tape.play_back();
  EXPECT_EQ(gradient_of(tape, a), (Row{0, 1, 2, 0}));
}

TEST(GradientTape, WritesNothingDownBeforeItsStart) {
  GradientTape tape = make_tape();
  const Row a = {1, 2, 3, 4};
  Row b;
  tape.copy(a.data(), sizeof a, b.data());
  tape.start();
  set(tape.gradient(b.data(), 4), 1);
  tape.play_back();
  EXPECT_EQ(gradient_of(tape, a), (Row{0, 0, 0, 0}));
  EXPECT_EQ(gradient_of(tape, b), (Row{1, 1, 1, 1}));
}

}  // namespace
}  // namespace k3
