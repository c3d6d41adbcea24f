#include "kernels/routed_experts.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "tests/kernels/bit_equality.h"
#include "tests/kernels/exact_backend.h"
#include "tests/kernels/forced_target.h"
#include "tests/kernels/random_matrix.h"

namespace k3 {
namespace {

constexpr int32_t kFixedPoint = 30;

// A bank of random experts and a batch that visits them.
struct Bank {
  RoutedExpertsShape shape;
  std::vector<ZeroedBytes> extents;
  std::vector<ExpertWeights> experts;

  Bank(Random& random, Format format, int64_t latent, int64_t inner, int64_t count)
      : shape{.place = {.format = format, .latent = latent, .inner = inner},
              .activation = format == Format::kMxfp4 ? Activation::kSitu : Activation::kSilu,
              .situ_beta = 4.0,
              .situ_linear_beta = 25.0,
              .fixed_point = kFixedPoint} {
    for (int64_t i = 0; i < count; ++i) {
      extents.emplace_back(shape.place.extent_bytes());
      experts.push_back({.extent = extents.back().data(), .least_exponent = {118, 119, 120}});
      for (int64_t band = 0; band < shape.place.bands(); ++band) fill_band(random, i, band);
    }
  }

 private:
  void fill_band(Random& random, int64_t expert, int64_t band) {
    std::byte* bytes = extents[static_cast<size_t>(expert)].data();
    for (const ExpertMatrix matrix : {ExpertMatrix::kW1, ExpertMatrix::kW3, ExpertMatrix::kW2}) {
      const ExpertBands::Part part = shape.place.part(band, matrix);
      if (shape.place.format == Format::kMxfp4) {
        fill_mxfp4(random, part.rows * part.cols / 32, 118 + static_cast<int>(matrix), 6,
                   bytes + part.codes_offset, bytes + part.scales_offset);
      } else {
        for (int64_t i = 0; i < part.rows * part.cols; ++i) {
          const uint16_t code = encode_bf16(0.1F * random_weight(random));
          std::memcpy(bytes + part.codes_offset + 2 * i, &code, 2);
        }
      }
    }
  }
};

struct Batch {
  int64_t tokens;
  int64_t k;
  std::vector<const ExpertWeights*> experts;
  std::vector<float> weights;
  std::vector<float> z;

  // Every token visits k distinct experts.
  Batch(Random& random, const Bank& bank, int64_t token_count, int64_t choices)
      : tokens(token_count), k(choices) {
    std::vector<size_t> order(bank.experts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (int64_t t = 0; t < tokens; ++t) {
      std::shuffle(order.begin(), order.end(), random);
      for (int64_t j = 0; j < k; ++j) {
        experts.push_back(&bank.experts[order[static_cast<size_t>(j)]]);
        weights.push_back(std::uniform_real_distribution<float>(0.01F, 1.0F)(random) /
                          static_cast<float>(k));
      }
      for (int64_t c = 0; c < bank.shape.place.latent; ++c) {
        z.push_back(std::normal_distribution<float>(0, 1)(random));
      }
    }
  }

  Batch(const Batch&) = default;
};

using RoutedExperts = void (*)(const RoutedExpertsShape&, std::span<const ExpertWeights* const>,
                               const float*, int64_t, const float*, int64_t, float*);

std::vector<float> run(RoutedExperts routed_experts, const RoutedExpertsShape& shape,
                       const Batch& batch) {
  std::vector<float> u(batch.z.size(), -1.0F);
  routed_experts(shape, batch.experts, batch.weights.data(), batch.k, batch.z.data(), batch.tokens,
                 u.data());
  return u;
}

ActivationVector read_latent(const RoutedExpertsShape& shape, const float* z,
                             std::vector<int16_t>& codes) {
  const int64_t latent = shape.place.latent;
  codes.resize(static_cast<size_t>(latent));
  ActivationVector vector{.values = z, .codes = codes.data(), .step = {}};
  if (reads_codes(shape.place.format)) vector.step = exact_quantize(z, latent, codes.data());
  return vector;
}

// The contract.
void exact_routed_experts(const RoutedExpertsShape& shape,
                          std::span<const ExpertWeights* const> experts, const float* weights,
                          int64_t k, const float* z, int64_t tokens, float* u) {
  ExactBackend().routed_experts(shape, experts, weights, k, z, tokens, u);
}

double weight_at(const MatrixView& w, int64_t r, int64_t c) {
  const std::byte* row = w.codes + r * w.row_stride_bytes;
  if (w.scales == nullptr) {
    return static_cast<double>(decode_bf16(reinterpret_cast<const uint16_t*>(row)[c]));
  }
  return static_cast<double>(decode_mxfp4(mxfp4_code_at(reinterpret_cast<const uint8_t*>(row), c),
                                          w.scales[r * w.scales_per_row + c / 32]));
}

struct Slow {
  std::vector<double> u;
  std::vector<double> bound;  // of exact, as routed_experts.h derives it (SiTU)
};

// One token in double, with the bound beside it.
Slow evaluate_slowly(const RoutedExpertsShape& shape, const Batch& batch, int64_t token) {
  const int64_t latent = shape.place.latent;
  const float* z = batch.z.data() + token * latent;
  std::vector<int16_t> codes;
  const double half_step = std::ldexp(0.5, read_latent(shape, z, codes).step.exponent);
  Slow slow{std::vector<double>(static_cast<size_t>(latent)),
            std::vector<double>(static_cast<size_t>(latent), 0x1p-140)};
  for (int64_t slot = token * batch.k; slot < (token + 1) * batch.k; ++slot) {
    const ExpertWeights* expert = batch.experts[static_cast<size_t>(slot)];
    if (expert == nullptr) continue;
    const auto p = static_cast<double>(batch.weights[static_cast<size_t>(slot)]);
    for (int64_t band = 0; band < shape.place.bands(); ++band) {
      const auto part = [&](ExpertMatrix m) { return view_expert_part(shape, *expert, band, m); };
      const MatrixView w1 = part(ExpertMatrix::kW1);
      const MatrixView w3 = part(ExpertMatrix::kW3);
      const MatrixView w2 = part(ExpertMatrix::kW2);
      std::vector<double> h;
      std::vector<double> h_bound;
      double h_max = 0;
      for (int64_t i = 0; i < w1.rows; ++i) {
        double g = 0;
        double u = 0;
        double dg = 0;
        double du = 0;
        for (int64_t c = 0; c < latent; ++c) {
          g += weight_at(w1, i, c) * static_cast<double>(z[c]);
          u += weight_at(w3, i, c) * static_cast<double>(z[c]);
          dg += std::fabs(weight_at(w1, i, c)) * half_step;
          du += std::fabs(weight_at(w3, i, c)) * half_step;
        }
        dg += std::ldexp(std::fabs(g), -22);
        du += std::ldexp(std::fabs(u), -22);
        const double sigmoid = 1 / (1 + std::exp(-g));
        const bool situ = shape.activation == Activation::kSitu;
        const double up = situ ? 25.0 * std::tanh(u / 25.0) : u;
        h.push_back((situ ? 4.0 * std::tanh(g / 4.0) : g) * sigmoid * up);
        h_bound.push_back(2.0 * (std::fabs(up) + du) * dg + 4.0 * du +
                          std::ldexp(std::fabs(h.back()), -22));
        h_max = std::max(h_max, std::fabs(h.back()) + h_bound.back());
      }
      const double h_half_step = h_max / 32639;  // the step is at most twice what h_max needs
      for (int64_t r = 0; r < latent; ++r) {
        const auto i = static_cast<size_t>(r);
        for (int64_t c = 0; c < w2.cols; ++c) {
          const auto inner = static_cast<size_t>(c);
          slow.u[i] += p * weight_at(w2, r, c) * h[inner];
          slow.bound[i] += p * std::fabs(weight_at(w2, r, c)) * (h_bound[inner] + h_half_step);
        }
        slow.bound[i] += std::ldexp(0.5, -shape.fixed_point);
      }
    }
  }
  for (size_t i = 0; i < slow.u.size(); ++i) {
    slow.bound[i] += std::ldexp(std::fabs(slow.u[i]), -22);
  }
  return slow;
}

TEST(RoutedExpertsReference, IsTheWeightedSumOfTheExperts) {
  Random random(1);
  for (const Format format : {Format::kMxfp4, Format::kBf16}) {
    const Bank bank(random, format, 64, 288, 5);
    const Batch batch(random, bank, 7, 3);
    const std::vector<float> u = run(reference::routed_experts, bank.shape, batch);
    for (int64_t t = 0; t < 7; ++t) {
      const Slow slow = evaluate_slowly(bank.shape, batch, t);
      const double size = *std::max_element(slow.u.begin(), slow.u.end());
      for (size_t r = 0; r < 64; ++r) {
        EXPECT_NEAR(static_cast<double>(u[static_cast<size_t>(t) * 64 + r]), slow.u[r],
                    1e-5 * size);
      }
    }
  }
}

TEST(RoutedExpertsExact, StaysWithinItsBoundOfADoubleEvaluation) {
  Random random(2);
  const Bank bank(random, Format::kMxfp4, 96, 288, 6);
  const Batch batch(random, bank, 5, 4);
  const std::vector<float> u = run(exact_routed_experts, bank.shape, batch);
  for (int64_t t = 0; t < 5; ++t) {
    const Slow slow = evaluate_slowly(bank.shape, batch, t);
    for (size_t r = 0; r < 96; ++r) {
      EXPECT_NEAR(static_cast<double>(u[static_cast<size_t>(t) * 96 + r]), slow.u[r],
                  slow.bound[r]);
      EXPECT_LT(slow.bound[r], 0.05 * *std::max_element(slow.u.begin(), slow.u.end()));
    }
  }
}

TEST(RoutedExpertsExact, BandsAndExpertsAddUpInAnyOrderAndAnySplit) {
  Random random(3);
  const Bank bank(random, Format::kMxfp4, 32, 544, 3);
  const Batch batch(random, bank, 1, 3);
  std::vector<int16_t> codes;
  const ActivationVector z = read_latent(bank.shape, batch.z.data(), codes);
  // Two devices: one takes band 1 of every expert, the other the rest, experts backwards.
  std::vector<int64_t> first(32);
  std::vector<int64_t> second(32);
  std::vector<uint8_t> in_range(32, 1);
  for (size_t j = 3; j-- > 0;) {
    for (int64_t band = 2; band >= 0; --band) {
      exact_add_band(bank.shape, *batch.experts[j], band, z, batch.weights[j],
                     band == 1 ? first.data() : second.data(), in_range.data());
    }
  }
  std::vector<float> u;
  for (size_t r = 0; r < 32; ++r) {
    u.push_back(exact_expert_output(first[r] + second[r], in_range[r], kFixedPoint));
  }
  EXPECT_TRUE(same_bits(u, run(cpu::routed_experts, bank.shape, batch)));
}

TEST(RoutedExpertsExact, ATermWithoutAnIntegerMakesItsOutputNanForGood) {
  int64_t sum = 5;
  uint8_t in_range = 1;
  exact_add_term(-2.5, sum, in_range);
  EXPECT_EQ(sum, 3);
  EXPECT_EQ(in_range, 1);
  exact_add_term(0x1p62, sum, in_range);
  EXPECT_EQ(in_range, 1);
  for (const double bad : {0x1.0000000000001p62, std::numeric_limits<double>::quiet_NaN(),
                           -std::numeric_limits<double>::infinity()}) {
    int64_t other = 5;
    uint8_t flag = 1;
    exact_add_term(bad, other, flag);
    exact_add_term(1.0, other, flag);
    EXPECT_EQ(flag, 0);
    EXPECT_TRUE(std::isnan(exact_expert_output(other, flag, kFixedPoint)));
  }
}

TEST(RoutedExpertsExact, SumsBeyondInt64Wrap) {
  int64_t sum = std::numeric_limits<int64_t>::max();
  uint8_t in_range = 1;
  exact_add_term(1.0, sum, in_range);
  EXPECT_EQ(sum, std::numeric_limits<int64_t>::min());
}

void expect_exact_bits_on_every_target(const RoutedExpertsShape& shape, const Batch& batch) {
  const std::vector<float> want = run(exact_routed_experts, shape, batch);
  for (const int64_t target : testable_targets()) {
    const ForcedTarget forced(target);
    ASSERT_TRUE(same_bits(run(cpu::routed_experts, shape, batch), want))
        << hwy::TargetName(target) << ", "
        << name_case(shape.place.format, shape.place.latent, shape.place.inner, batch.tokens);
  }
}

TEST(RoutedExpertsCpu, HasTheExactBits) {
  Random random(4);
  for (const Format format : {Format::kMxfp4, Format::kBf16}) {
    for (const int64_t inner : {32, 256, 288, 512}) {
      for (const int64_t latent : {32, 96, 160}) {
        const Bank bank(random, format, latent, inner, 7);
        for (const int64_t tokens : {1, 3, 17}) {
          expect_exact_bits_on_every_target(bank.shape, Batch(random, bank, tokens, 4));
        }
      }
    }
  }
}

// Each visit alone with weight 1: its output is the expert's.
std::vector<double> norms_one_by_one(RoutedExperts routed_experts, const RoutedExpertsShape& shape,
                                     const Batch& batch) {
  const auto latent = static_cast<size_t>(shape.place.latent);
  std::vector<double> norms;
  for (size_t slot = 0; slot < batch.experts.size(); ++slot) {
    std::vector<float> u(latent);
    const float weight = 1;
    const float* z = batch.z.data() + slot / static_cast<size_t>(batch.k) * latent;
    routed_experts(shape, std::span(batch.experts).subspan(slot, 1), &weight, 1, z, 1, u.data());
    double squares = 0;
    for (const float value : u) squares += static_cast<double>(value) * static_cast<double>(value);
    norms.push_back(std::sqrt(squares));
  }
  return norms;
}

TEST(RoutedExperts, NormsAreThoseOfTheUnweightedOutputsAndChangeNoBit) {
  Random random(8);
  for (const RoutedExperts routed_experts : {reference::routed_experts, cpu::routed_experts}) {
    for (const Format format : {Format::kMxfp4, Format::kBf16}) {
      Bank bank(random, format, 96, 288, 5);
      Batch batch(random, bank, 9, 3);
      batch.experts[4] = nullptr;
      const std::vector<float> without = run(routed_experts, bank.shape, batch);
      const std::vector<double> want = norms_one_by_one(routed_experts, bank.shape, batch);
      std::vector<float> norms(want.size(), -1.0F);
      bank.shape.norms = norms.data();
      EXPECT_TRUE(same_bits(run(routed_experts, bank.shape, batch), without));
      for (size_t slot = 0; slot < want.size(); ++slot) {
        EXPECT_NEAR(static_cast<double>(norms[slot]), want[slot], 1e-6 * want[slot]);
      }
      EXPECT_EQ(norms[4], 0);
      EXPECT_GT(norms[5], 0);
    }
  }
}

TEST(RoutedExpertsCpu, HasTheExactBitsForOddWidthsOfBf16) {
  Random random(5);
  const Bank bank(random, Format::kBf16, 37, 259, 3);
  expect_exact_bits_on_every_target(bank.shape, Batch(random, bank, 3, 2));
}

TEST(RoutedExpertsCpu, HasTheExactBitsForOneExpertPerToken) {
  Random random(6);
  const Bank bank(random, Format::kMxfp4, 64, 64, 2);
  expect_exact_bits_on_every_target(bank.shape, Batch(random, bank, 9, 1));
}

TEST(RoutedExpertsCpu, HasTheExactBitsAtExtremeFixedPoints) {
  Random random(7);
  Bank bank(random, Format::kMxfp4, 32, 32, 2);
  const Batch batch(random, bank, 2, 2);
  for (const int32_t fixed_point : {std::numeric_limits<int32_t>::min(), -1000, 50, 62, 1000,
                                    std::numeric_limits<int32_t>::max()}) {
    bank.shape.fixed_point = fixed_point;
    expect_exact_bits_on_every_target(bank.shape, batch);
  }
}

TEST(RoutedExpertsCpu, TheOrderOfATokensExpertsDoesNotChangeBits) {
  Random random(8);
  const Bank bank(random, Format::kMxfp4, 64, 288, 6);
  const Batch batch(random, bank, 3, 5);
  Batch reversed = batch;
  for (int64_t t = 0; t < 3; ++t) {
    std::reverse(reversed.experts.begin() + 5 * t, reversed.experts.begin() + 5 * (t + 1));
    std::reverse(reversed.weights.begin() + 5 * t, reversed.weights.begin() + 5 * (t + 1));
  }
  EXPECT_TRUE(same_bits(run(cpu::routed_experts, bank.shape, reversed),
                        run(cpu::routed_experts, bank.shape, batch)));
}

TEST(RoutedExpertsCpu, ANullExpertAddsNothing) {
  Random random(9);
  const Bank bank(random, Format::kMxfp4, 64, 64, 4);
  Batch batch(random, bank, 2, 3);
  batch.experts[1] = nullptr;
  Batch zero_weight = batch;
  zero_weight.experts[1] = &bank.experts[0];
  zero_weight.weights[1] = 0.0F;
  const std::vector<float> u = run(cpu::routed_experts, bank.shape, batch);
  EXPECT_TRUE(same_bits(u, run(cpu::routed_experts, bank.shape, zero_weight)));
  EXPECT_TRUE(same_bits(u, run(exact_routed_experts, bank.shape, batch)));
  const std::vector<float> reference = run(reference::routed_experts, bank.shape, batch);
  EXPECT_TRUE(same_bits(reference, run(reference::routed_experts, bank.shape, zero_weight)));

  std::fill(batch.experts.begin(), batch.experts.end(), nullptr);
  const std::vector<float> zeros(batch.z.size(), 0.0F);
  EXPECT_TRUE(same_bits(run(cpu::routed_experts, bank.shape, batch), zeros));
  EXPECT_TRUE(same_bits(run(reference::routed_experts, bank.shape, batch), zeros));
}

TEST(RoutedExpertsCpu, ANonFiniteInputStaysWithItsToken) {
  Random random(10);
  for (const Format format : {Format::kMxfp4, Format::kBf16}) {
    const Bank bank(random, format, 64, 64, 3);
    const Batch clean(random, bank, 3, 2);
    Batch bad = clean;
    bad.z[64 + 9] = std::numeric_limits<float>::quiet_NaN();
    bad.weights[4] = std::numeric_limits<float>::infinity();
    const std::vector<float> want = run(cpu::routed_experts, bank.shape, clean);
    const std::vector<float> u = run(cpu::routed_experts, bank.shape, bad);
    for (size_t r = 0; r < 64; ++r) {
      EXPECT_EQ(u[r], want[r]);
      EXPECT_TRUE(std::isnan(u[64 + r]));
      EXPECT_TRUE(std::isnan(u[128 + r]));
    }
    expect_exact_bits_on_every_target(bank.shape, bad);
  }
}

TEST(RoutedExpertsExact, SiluIsHeldTo2To20AndSituIsNot) {
  EXPECT_EQ(exact_held_activation(Activation::kSilu, -0x1p20F), -0x1p20F);
  EXPECT_TRUE(std::isnan(exact_held_activation(Activation::kSilu, 0x1.000002p20F)));
  EXPECT_TRUE(std::isnan(exact_held_activation(Activation::kSilu, -HUGE_VALF)));
  EXPECT_EQ(exact_held_activation(Activation::kSitu, 0x1p21F), 0x1p21F);
}

TEST(RoutedExpertsCpu, AnActivationThatIsNotHeldMakesItsTokensOutputsNan) {
  Random random(12);
  for (const Format format : {Format::kMxfp4, Format::kBf16}) {
    Bank bank(random, format, 64, 288, 3);
    bank.shape.activation = Activation::kSilu;
    const Batch clean(random, bank, 3, 2);
    Batch large = clean;
    for (size_t i = 64; i < 128; ++i) large.z[i] *= 1e6F;
    const std::vector<float> want = run(cpu::routed_experts, bank.shape, clean);
    const std::vector<float> u = run(cpu::routed_experts, bank.shape, large);
    for (size_t r = 0; r < 64; ++r) {
      EXPECT_EQ(u[r], want[r]);
      EXPECT_TRUE(std::isnan(u[64 + r]));
      EXPECT_EQ(u[128 + r], want[128 + r]);
    }
    expect_exact_bits_on_every_target(bank.shape, large);
  }
}

TEST(RoutedExpertsCpu, ThreadsDoNotChangeBits) {
  Random random(11);
  const Bank bank(random, Format::kMxfp4, 320, 544, 6);
  const Batch batch(random, bank, 5, 4);
  const std::vector<float> want = run(exact_routed_experts, bank.shape, batch);
  for (const int threads : {1, 2, 7}) {
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                                    static_cast<size_t>(threads));
    tbb::task_arena arena(threads);
    arena.execute(
        [&] { EXPECT_TRUE(same_bits(run(cpu::routed_experts, bank.shape, batch), want)); });
  }
}

}  // namespace
}  // namespace k3
