#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "kernels/gradients.h"
#include "kernels/routed_experts.h"
#include "kernels/router.h"
#include "tests/kernels/finite_differences.h"
#include "tests/kernels/random_matrix.h"

namespace k3 {
namespace {

// Every token chooses the same experts, in the order of their biases, so that no small step
// changes the choice; one expert of the five is masked.
TEST(GradientRoute, AgreesWithDifferencesAlsoWhereSlotsStayEmpty) {
  const float masked = -std::numeric_limits<float>::infinity();
  const Floats bias = {10, masked, 30, 20, 0};
  const std::vector<int32_t> ids = {0, 1, 2, 3, 4};
  const int64_t tokens = 3;
  Floats logits = normal_values(tokens * 5, 1);
  for (const bool renormalize : {false, true}) {
    for (const int64_t k : {1, 3, 6}) {
      if (renormalize && k == 1) continue;  // one weight alone does not depend on its score
      const RouterRule rule{k, renormalize, 2.5};
      std::vector<int32_t> slots(static_cast<size_t>(tokens * k));
      const auto forward = [&] {
        Floats weights(slots.size());
        reference::route(rule, logits.data(), bias.data(), ids.data(), tokens, 5, slots.data(),
                         weights.data(), nullptr);
        return weights;
      };
      forward();
      ASSERT_EQ(slots[static_cast<size_t>(k - 1)], k == 1 ? 2 : k == 3 ? 0 : -1);
      check_gradients(
          {&logits}, forward, [&](const Floats& gy, const std::vector<float*>& gradients) {
            gradient::route(rule, logits.data(), slots.data(), gy.data(), tokens, 5, gradients[0]);
          });
    }
  }
}

struct ExpertsCase {
  RoutedExpertsShape shape;
  std::vector<ZeroedBytes> extents;
  std::vector<ExpertWeights> bank;
  int64_t tokens;
  int64_t k;
  std::vector<const ExpertWeights*> experts;
  Floats weights, z;

  // Slot i of the batch visits expert i^2 mod count, and every seventh slot none.
  ExpertsCase(Format format, Activation activation, int64_t latent, int64_t inner, int64_t count,
              int64_t token_count, int64_t choices)
      : shape{.place = {.format = format, .latent = latent, .inner = inner},
              .activation = activation,
              .situ_beta = 1.5,
              .situ_linear_beta = 3.0},
        tokens(token_count),
        k(choices) {
    Random random(1);
    for (int64_t i = 0; i < count; ++i) {
      extents.emplace_back(shape.place.extent_bytes());
      bank.push_back({.extent = extents.back().data(), .least_exponent = {121, 121, 121}});
      for (int64_t band = 0; band < shape.place.bands(); ++band) fill_band(random, band);
    }
    for (int64_t slot = 0; slot < tokens * k; ++slot) {
      const auto expert = static_cast<size_t>(slot * slot % count);
      experts.push_back(slot % 7 == 3 ? nullptr : &bank[expert]);
    }
    weights = normal_values(tokens * k, 2);
    z = normal_values(tokens * latent, 3);
  }

  void fill_band(Random& random, int64_t band) {
    std::byte* const bytes = extents.back().data();
    for (const ExpertMatrix matrix : {ExpertMatrix::kW1, ExpertMatrix::kW3, ExpertMatrix::kW2}) {
      const ExpertBands::Part part = shape.place.part(band, matrix);
      if (shape.place.format == Format::kMxfp4) {
        fill_mxfp4(random, part.rows * part.cols / 32, 121, 3, bytes + part.codes_offset,
                   bytes + part.scales_offset);
        continue;
      }
      const Floats values =
          normal_values(part.rows * part.cols, static_cast<uint32_t>(random() % 1000), 0.2F);
      for (size_t i = 0; i < values.size(); ++i) {
        std::byte* const code = bytes + part.codes_offset;
        const uint16_t bf16 = encode_bf16(values[i]);
        if (shape.place.format == Format::kF32) std::memcpy(code + 4 * i, &values[i], 4);
        if (shape.place.format == Format::kBf16) std::memcpy(code + 2 * i, &bf16, 2);
      }
    }
  }

  Floats forward() const {
    Floats u(z.size());
    reference::routed_experts(shape, experts, weights.data(), k, z.data(), tokens, u.data());
    return u;
  }
  void backward(const Floats& gu, const std::vector<float*>& gradients) const {
    gradient::routed_experts(shape, experts, weights.data(), k, z.data(), tokens, gu.data(),
                             gradients[0], gradients[1]);
  }
};

void check(ExpertsCase&& a) {
  check_gradients(
      {&a.z, &a.weights}, [&] { return a.forward(); },
      [&](const Floats& gu, const std::vector<float*>& gradients) { a.backward(gu, gradients); });
}

TEST(GradientRoutedExperts, AgreesWithDifferencesForEveryFormatAndActivation) {
  for (const Activation activation : {Activation::kSilu, Activation::kSitu}) {
    for (const Format format : {Format::kF32, Format::kBf16}) {
      check(ExpertsCase(format, activation, 13, 11, 3, 5, 3));
    }
    check(ExpertsCase(Format::kMxfp4, activation, 32, 64, 3, 5, 3));
  }
}

TEST(GradientRoutedExperts, AgreesWithDifferencesOverSeveralBands) {
  check(ExpertsCase(Format::kF32, Activation::kSitu, 7, 261, 2, 3, 2));
}

TEST(GradientRoutedExperts, HasTheSameBitsOnAnyNumberOfThreads) {
  const ExpertsCase a(Format::kMxfp4, Activation::kSitu, 64, 96, 9, 40, 4);
  const Floats gu = normal_values(std::ssize(a.z), 4);
  expect_same_bits_on_any_threads(
      {a.z.size(), a.weights.size()},
      [&](const std::vector<float*>& gradients) { a.backward(gu, gradients); });
}

}  // namespace
}  // namespace k3
