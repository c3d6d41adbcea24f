// The operations between the products, on the emulated GPU, against the same on the host.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/attention_residual.h"
#include "kernels/embedding.h"
#include "kernels/hadamard.h"
#include "kernels/operations_cuda.h"
#include "kernels/rms_norm.h"
#include "kernels/short_conv.h"
#include "tests/gpu/device_array.h"
#include "tests/kernels/bit_equality.h"
#include "tests/kernels/random_matrix.h"

namespace k3 {
namespace {

using test::DeviceArray;
using test::the_stream;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Runs `work` with the threads of a block in both orders; it fails by gtest.
void in_both_orders(const std::function<void()>& work) {
  for (const auto order : {emulated::Order::kAscending, emulated::Order::kDescending}) {
    emulated::set_order(order);
    work();
  }
  emulated::set_order(emulated::Order::kAscending);
}

std::vector<float> normal_floats(Random& random, int64_t count, float scale = 1.0F) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(scale * std::normal_distribution<float>(0, 1)(random));
  }
  return values;
}

std::vector<float> floats(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), -1.0F);
}

TEST(ElementwiseCuda, HasTheBitsOfTheHost) {
  Random random(1);
  const int64_t n = 1000;
  std::vector<float> a = normal_floats(random, n, 8.0F);
  std::vector<float> b = normal_floats(random, n, 30.0F);
  a[3] = kNan;
  a[4] = INFINITY;
  b[5] = -INFINITY;
  DeviceArray<float> a_there(a);
  DeviceArray<float> b_there(b);
  DeviceArray<float> y(static_cast<size_t>(n));
  std::vector<float> want = floats(n);
  ASSERT_EQ(cuda::add(a_there.data(), b_there.data(), n, y.data(), the_stream()), cudaSuccess);
  cpu::add(a.data(), b.data(), n, want.data());
  EXPECT_TRUE(same_bits(y.values(), want));
  for (const GluRule& rule : {GluRule{Activation::kSitu, 4.0, 25.0}, GluRule{}}) {
    ASSERT_EQ(cuda::glu(rule, a_there.data(), b_there.data(), n, y.data(), the_stream()),
              cudaSuccess);
    cpu::glu(rule, a.data(), b.data(), n, want.data());
    EXPECT_TRUE(same_bits(y.values(), want));
  }
  ASSERT_EQ(cuda::sigmoid_gate(a_there.data(), b_there.data(), n, y.data(), the_stream()),
            cudaSuccess);
  cpu::sigmoid_gate(a.data(), b.data(), n, want.data());
  EXPECT_TRUE(same_bits(y.values(), want));
}

TEST(EmbedCuda, CopiesRows) {
  Random random(2);
  for (const Format format : {Format::kBf16, Format::kF32}) {
    const RandomMatrix table(random, format, 11, 37);
    const test::DeviceMatrix there(table.view);
    const std::vector<int32_t> ids = {10, 0, 3, 3};
    DeviceArray<int32_t> ids_there(ids);
    DeviceArray<float> y(ids.size() * 37);
    ASSERT_EQ(cuda::embed(there.view(), ids_there.data(), 4, y.data(), the_stream()), cudaSuccess);
    std::vector<float> want = floats(4 * 37);
    cpu::embed(table.view, ids, want.data());
    EXPECT_TRUE(same_bits(y.values(), want));
  }
}

TEST(HadamardCuda, HasTheBitsOfTheHostInPlace) {
  Random random(4);
  for (const int64_t block :
       {int64_t{1}, int64_t{2}, int64_t{64}, int64_t{512}, kLargestHadamard}) {
    const int64_t width = 3 * block;
    const std::vector<float> x = random_activations(random, 2, width);
    std::vector<float> want = floats(2 * width);
    cpu::hadamard(x.data(), 2, width, block, want.data());
    in_both_orders([&] {
      DeviceArray<float> there(x);
      ASSERT_EQ(cuda::hadamard(there.data(), 2, width, block, there.data(), the_stream()),
                cudaSuccess);
      EXPECT_TRUE(same_bits(there.values(), want)) << block;
    });
  }
}

TEST(RmsNormCuda, HasTheBitsOfTheHostAtAnyWidthAndInPlace) {
  Random random(3);
  for (const int64_t width : {1, 31, 33, 1024, 1025, 7168}) {
    const std::vector<float> x = random_activations(random, 7, width);
    const std::vector<float> weight = normal_floats(random, width);
    std::vector<float> want = floats(7 * width);
    cpu::rms_norm(x.data(), weight.data(), 7, width, 1e-6, want.data());
    in_both_orders([&] {
      DeviceArray<float> there(x);
      DeviceArray<float> weight_there(weight);
      ASSERT_EQ(cuda::rms_norm(there.data(), width, weight_there.data(), 7, width, 1e-6,
                               there.data(), width, the_stream()),
                cudaSuccess);
      EXPECT_TRUE(same_bits(there.values(), want)) << width;
    });
  }
}

TEST(RmsNormCuda, LeavesWhatIsBetweenTheRows) {
  const std::vector<float> x = {3.0F, 4.0F, 7.0F, 1.0F, 1.0F, 8.0F};
  DeviceArray<float> there(x);
  DeviceArray<float> weight(std::vector<float>{1.0F, 2.0F});
  ASSERT_EQ(
      cuda::rms_norm(there.data(), 3, weight.data(), 2, 2, 0.0, there.data(), 3, the_stream()),
      cudaSuccess);
  const std::vector<float> y = there.values();
  EXPECT_EQ(y[2], 7.0F);
  EXPECT_EQ(y[5], 8.0F);
  EXPECT_EQ(y[3], 1.0F);
  EXPECT_EQ(y[4], 2.0F);
}

TEST(AttentionResidualCuda, HasTheBitsOfTheHost) {
  Random random(4);
  for (const int64_t hidden : {1, 33, 130, 1500}) {
    for (const int64_t count : {1, 2, 9}) {
      const int64_t tokens = 3;
      const std::vector<float> norm = normal_floats(random, hidden);
      const std::vector<float> proj = normal_floats(random, hidden);
      std::vector<std::vector<float>> sources;
      std::vector<const float*> pointers;
      for (int64_t j = 0; j < count; ++j) {
        sources.push_back(normal_floats(random, tokens * hidden, 3.0F));
        if (j == 1) sources.back()[static_cast<size_t>(hidden)] = kNan;  // token 1
      }
      std::vector<float> want = floats(tokens * hidden);
      for (const auto& source : sources) pointers.push_back(source.data());
      cpu::attention_residual_mix(pointers, norm.data(), proj.data(), tokens, hidden, 1e-5,
                                  want.data());
      in_both_orders([&] {
        DeviceArray<float> norm_there(norm);
        DeviceArray<float> proj_there(proj);
        std::vector<std::unique_ptr<DeviceArray<float>>> there;
        std::vector<const float*> places;
        for (const auto& source : sources) {
          places.push_back(
              there.emplace_back(std::make_unique<DeviceArray<float>>(source))->data());
        }
        DeviceArray<double> weights(static_cast<size_t>(tokens * count));
        DeviceArray<float> y(static_cast<size_t>(tokens * hidden));
        ASSERT_EQ(cuda::attention_residual_mix(places.data(), count, norm_there.data(),
                                               proj_there.data(), tokens, hidden, 1e-5,
                                               weights.data(), y.data(), the_stream()),
                  cudaSuccess);
        EXPECT_TRUE(same_bits(y.values(), want)) << hidden << ", " << count << " sources";
      });
    }
  }
}

TEST(ShortConvCuda, HasTheBitsAndTheWindowOfTheHost) {
  Random random(5);
  for (const int64_t taps : {1, 2, 4}) {
    for (const int64_t tokens : {1, 2, 3, 9}) {
      const int64_t channels = 70;
      const std::vector<float> x = normal_floats(random, tokens * channels, 2.0F);
      const std::vector<float> weight = normal_floats(random, taps * channels);
      std::vector<float> window = normal_floats(random, (taps - 1) * channels);
      DeviceArray<float> x_there(x);
      DeviceArray<float> weight_there(weight);
      DeviceArray<float> window_there(window);
      DeviceArray<float> y(x.size());
      ASSERT_EQ(cuda::short_conv(x_there.data(), weight_there.data(), tokens, channels, taps,
                                 window_there.data(), y.data(), the_stream()),
                cudaSuccess);
      std::vector<float> want = floats(tokens * channels);
      cpu::short_conv(x.data(), weight.data(), tokens, channels, taps, window.data(), want.data());
      EXPECT_TRUE(same_bits(y.values(), want));
      EXPECT_TRUE(same_bits(window_there.values(), window));
    }
  }
}

TEST(KdaCuda, HasTheBitsAndTheStateOfTheHost) {
  Random random(6);
  for (const int64_t dim : {8, 32, 40, 128}) {  // 128 stays in registers
    for (const bool bounded : {true, false}) {
      const int64_t heads = 3;
      const int64_t tokens = 4;
      const int64_t width = heads * dim;
      KdaShape shape{
          .heads = heads, .head_dim = dim, .decay_lower_bound = {}, .qk_norm_epsilon = 1e-6};
      if (bounded) shape.decay_lower_bound = -5.0;
      const std::vector<float> q = normal_floats(random, tokens * width);
      const std::vector<float> k = normal_floats(random, tokens * width);
      const std::vector<float> v = normal_floats(random, tokens * width);
      const std::vector<float> decay = normal_floats(random, tokens * width);
      const std::vector<float> beta = normal_floats(random, tokens * heads);
      const std::vector<float> a_log = normal_floats(random, heads);
      const std::vector<float> dt_bias = normal_floats(random, width);
      const std::vector<float> start = normal_floats(random, width * dim);
      const KdaInputs in{q.data(),    k.data(),     v.data(),      decay.data(),
                         beta.data(), a_log.data(), dt_bias.data()};
      std::vector<float> state = start;
      std::vector<float> want = floats(tokens * width);
      cpu::kda(shape, in, tokens, state.data(), want.data());
      in_both_orders([&] {
        DeviceArray<float> q_there(q), k_there(k), v_there(v), decay_there(decay);
        DeviceArray<float> beta_there(beta), a_there(a_log), bias_there(dt_bias);
        DeviceArray<float> state_there(start);
        DeviceArray<float> o(want.size());
        const KdaInputs there{q_there.data(),     k_there.data(),    v_there.data(),
                              decay_there.data(), beta_there.data(), a_there.data(),
                              bias_there.data()};
        ASSERT_EQ(cuda::kda(shape, there, tokens, state_there.data(), o.data(), the_stream()),
                  cudaSuccess);
        EXPECT_TRUE(same_bits(o.values(), want)) << dim;
        EXPECT_TRUE(same_bits(state_there.values(), state)) << dim;
      });
    }
  }
}

TEST(KdaOutputGateCuda, HasTheBitsOfTheHost) {
  Random random(7);
  for (const int64_t dim : {8, 33, 128}) {
    const int64_t rows = 3 * 5;
    const std::vector<float> o = normal_floats(random, rows * dim);
    const std::vector<float> gate = normal_floats(random, rows * dim);
    const std::vector<float> weight = normal_floats(random, dim);
    std::vector<float> want = floats(rows * dim);
    cpu::kda_output_gate(o.data(), weight.data(), gate.data(), 3, 5, dim, 1e-5, want.data());
    DeviceArray<float> o_there(o);
    DeviceArray<float> gate_there(gate);
    DeviceArray<float> weight_there(weight);
    ASSERT_EQ(cuda::kda_output_gate(o_there.data(), weight_there.data(), gate_there.data(), 3, 5,
                                    dim, 1e-5, o_there.data(), the_stream()),
              cudaSuccess);
    EXPECT_TRUE(same_bits(o_there.values(), want));
  }
}

void expect_mla_bits(Random& random, const MlaShape& shape, Format format, int64_t first,
                     int64_t tokens, bool with_nan) {
  const int64_t rows = shape.heads * (shape.content_dim + shape.v_dim);
  const RandomMatrix kv_b(random, format, rows, shape.latent);
  const test::DeviceMatrix kv_b_there(kv_b.view);
  const int64_t positions = first + tokens;
  std::vector<float> cache = normal_floats(random, positions * shape.cache_width());
  if (with_nan) cache[static_cast<size_t>(positions * shape.cache_width() - 2)] = kNan;
  const std::vector<float> q = normal_floats(random, tokens * shape.heads * shape.query_dim());
  std::vector<float> want = floats(tokens * shape.heads * shape.v_dim);
  cpu::mla_attention(shape, q.data(), kv_b.view, cache.data(), first, tokens, want.data());
  // Room for more positions than there are, as a captured call has.
  const int64_t room = positions + 70;
  DeviceArray<float> cache_there(cache);
  DeviceArray<float> q_there(q);
  DeviceArray<int64_t> first_there(std::vector<int64_t>{first});
  DeviceArray<std::byte> scratch(
      static_cast<size_t>(tokens * cuda::mla_scratch_bytes(shape, room)));
  DeviceArray<float> o(want.size());
  ASSERT_EQ(cuda::mla_attention(shape, q_there.data(), kv_b_there.view(), cache_there.data(),
                                first_there.data(), 0, room, tokens, scratch.data(), o.data(),
                                the_stream()),
            cudaSuccess);
  EXPECT_TRUE(same_bits(o.values(), want)) << first << " + " << tokens;
}

TEST(MlaAttentionCuda, HasTheBitsOfTheHostAtAnyPosition) {
  Random random(8);
  const MlaShape shape{.heads = 5, .content_dim = 16, .extra_dim = 8, .v_dim = 12, .latent = 40};
  for (const Format format : {Format::kBf16, Format::kF32}) {
    for (const int64_t first : {0, 1, 63, 64, 127, 200}) {
      for (const int64_t tokens : {1, 3}) {
        expect_mla_bits(random, shape, format, first, tokens, false);
      }
    }
  }
  in_both_orders([&] { expect_mla_bits(random, shape, Format::kBf16, 150, 2, false); });
}

TEST(MlaAttentionCuda, ANanInTheCacheReachesTheTokensThatSeeIt) {
  Random random(9);
  const MlaShape shape{.heads = 2, .content_dim = 8, .extra_dim = 4, .v_dim = 8, .latent = 32};
  expect_mla_bits(random, shape, Format::kBf16, 0, 1, true);
  expect_mla_bits(random, shape, Format::kBf16, 70, 2, true);
}

TEST(AppendToCacheCuda, PutsTheEntriesAtThePositionOnTheDevice) {
  DeviceArray<float> cache(std::vector<float>(12, 0.0F));
  DeviceArray<float> entries(std::vector<float>{1, 2, 3, 4, 5, 6});
  DeviceArray<int64_t> first(std::vector<int64_t>{1});
  ASSERT_EQ(cuda::append_to_cache(entries.data(), 2, 3, first.data(), cache.data(), the_stream()),
            cudaSuccess);
  EXPECT_EQ(cache.values(), (std::vector<float>{0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0}));
}

TEST(RouteCuda, HasTheBitsOfTheHostWithTiesMasksAndNans) {
  Random random(10);
  for (const int64_t experts : {5, 64, 300, 897}) {
    for (const bool renormalize : {true, false}) {
      const int64_t tokens = 3;
      const RouterRule rule{.experts_per_token = experts == 5 ? 8 : 16,
                            .renormalize = renormalize,
                            .routed_scaling_factor = 2.5};
      const int64_t k = rule.experts_per_token;
      std::vector<float> logits = normal_floats(random, tokens * experts);
      for (size_t i = 0; i < logits.size(); i += 3) logits[i] = 0.25F;  // ties
      std::vector<float> bias = normal_floats(random, experts, 0.1F);
      for (size_t i = 0; i < bias.size(); i += 3) bias[i] = 0.5F;
      bias[1] = -INFINITY;
      bias[4] = -INFINITY;
      logits[static_cast<size_t>(experts + 2)] = kNan;  // token 1
      std::vector<int32_t> sources;
      for (int64_t e = 0; e < experts; ++e) sources.push_back(static_cast<int32_t>(experts - e));
      std::vector<int32_t> want_slots(static_cast<size_t>(tokens * k));
      std::vector<float> want(want_slots.size());
      std::vector<float> want_scores(logits.size());
      cpu::route(rule, logits.data(), bias.data(), sources.data(), tokens, experts,
                 want_slots.data(), want.data(), want_scores.data());
      in_both_orders([&] {
        DeviceArray<float> logits_there(logits);
        DeviceArray<float> bias_there(bias);
        DeviceArray<int32_t> sources_there(sources);
        DeviceArray<uint64_t> keys(logits.size());
        DeviceArray<float> scores(logits.size());
        DeviceArray<int32_t> slots(want.size());
        DeviceArray<float> weights(want.size());
        ASSERT_EQ(cuda::route(rule, logits_there.data(), bias_there.data(), sources_there.data(),
                              tokens, experts, keys.data(), scores.data(), slots.data(),
                              weights.data(), the_stream()),
                  cudaSuccess);
        EXPECT_EQ(slots.values(), want_slots) << experts;
        EXPECT_TRUE(same_bits(weights.values(), want));
        EXPECT_TRUE(same_bits(scores.values(), want_scores));
      });
    }
  }
}

TEST(FindNotFiniteCuda, NamesTheFirstPlaceAndValue) {
  DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{~0ull});
  std::vector<float> values(300, 1.0F);
  DeviceArray<float> sound(values);
  ASSERT_EQ(cuda::find_not_finite(sound.data(), 300, 2, fault.data(), the_stream()), cudaSuccess);
  EXPECT_EQ(fault.values()[0], ~0ull);
  values[290] = -INFINITY;
  values[7] = kNan;
  DeviceArray<float> broken(values);
  ASSERT_EQ(cuda::find_not_finite(broken.data(), 300, 5, fault.data(), the_stream()), cudaSuccess);
  ASSERT_EQ(cuda::find_not_finite(broken.data(), 300, 6, fault.data(), the_stream()), cudaSuccess);
  EXPECT_EQ(fault.values()[0], cuda::fault_word(5, 7, cuda::FaultKind::kNan));
}

}  // namespace
}  // namespace k3
