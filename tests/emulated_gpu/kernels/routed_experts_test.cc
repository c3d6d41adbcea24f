#include "kernels/routed_experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/operations_cuda.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/prepared_vectors.h"
#include "tests/kernels/bit_equality.h"
#include "tests/kernels/random_matrix.h"

namespace k3 {
namespace {

using test::DeviceArray;
using test::the_stream;

// Random experts, on the host and on the device.
struct Bank {
  RoutedExpertsShape shape;
  std::vector<ZeroedBytes> extents;
  std::vector<ExpertWeights> experts;
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> extents_there;
  std::vector<ExpertWeights> table;  // for the device

  Bank(Random& random, Format format, int64_t latent, int64_t inner, Activation activation)
      : shape{.place = {.format = format, .latent = latent, .inner = inner},
              .activation = activation,
              .situ_beta = 4.0,
              .situ_linear_beta = 25.0,
              .fixed_point = 30} {
    for (int i = 0; i < 4; ++i) {
      extents.emplace_back(shape.place.extent_bytes());
      std::byte* bytes = extents.back().data();
      for (int64_t band = 0; band < shape.place.bands(); ++band) fill_band(random, bytes, band);
      const auto size = static_cast<size_t>(shape.place.extent_bytes());
      extents_there.push_back(
          std::make_unique<DeviceArray<std::byte>>(std::span<const std::byte>(bytes, size)));
      experts.push_back({.extent = bytes, .least_exponent = {118, 119, 120}});
      table.push_back({.extent = extents_there.back()->data(), .least_exponent = {118, 119, 120}});
    }
  }

 private:
  void fill_band(Random& random, std::byte* bytes, int64_t band) const {
    for (const ExpertMatrix matrix : {ExpertMatrix::kW1, ExpertMatrix::kW3, ExpertMatrix::kW2}) {
      const ExpertBands::Part part = shape.place.part(band, matrix);
      const int64_t count = part.rows * part.cols;
      if (shape.place.format == Format::kMxfp4) {
        fill_mxfp4(random, count / 32, 118 + static_cast<int>(matrix), 6, bytes + part.codes_offset,
                   bytes + part.scales_offset);
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        const float weight = 0.1F * random_weight(random);
        const uint16_t code = encode_bf16(weight);
        if (shape.place.format == Format::kBf16) {
          std::memcpy(bytes + part.codes_offset + 2 * i, &code, 2);
        } else {
          std::memcpy(bytes + part.codes_offset + 4 * i, &weight, 4);
        }
      }
    }
  }
};

// Visits of three tokens with k = 3; -1 is none.
struct Batch {
  static constexpr int64_t kTokens = 3;
  static constexpr int64_t kEach = 3;
  std::vector<int32_t> slots = {0, 3, 1, 2, -1, 0, -1, -1, -1};
  std::vector<float> weights = {0.5F, 0.25F, 0.25F, 1.5F, 0.0F, -0.75F, 0.0F, 0.0F, 0.0F};
  std::vector<float> z;
};

std::vector<float> on_host(const Bank& bank, const Batch& batch, bool reference) {
  std::vector<const ExpertWeights*> experts;
  for (const int32_t slot : batch.slots) {
    experts.push_back(slot < 0 ? nullptr : &bank.experts[static_cast<size_t>(slot)]);
  }
  std::vector<float> u(batch.z.size());
  (reference ? reference::routed_experts : cpu::routed_experts)(
      bank.shape, experts, batch.weights.data(), Batch::kEach, batch.z.data(), Batch::kTokens,
      u.data());
  return u;
}

std::vector<float> on_gpu(const Bank& bank, const Batch& batch) {
  const ExpertBands& place = bank.shape.place;
  const auto visits = static_cast<size_t>(Batch::kTokens * Batch::kEach);
  const auto inner = static_cast<size_t>(place.inner);
  const auto bands = static_cast<size_t>(place.bands());
  DeviceArray<ExpertWeights> table(bank.table);
  DeviceArray<int32_t> slots(batch.slots);
  DeviceArray<float> weights(batch.weights);
  DeviceArray<float> z(batch.z);
  DeviceArray<float> gate(visits * inner), up(visits * inner);
  DeviceArray<std::byte> hidden_tiles(visits * bands *
                                      static_cast<size_t>(cuda::hidden_tile_bytes(place)));
  DeviceArray<ActivationStep> hidden_steps(visits * bands);
  DeviceArray<unsigned long long> sums(batch.z.size());
  DeviceArray<unsigned> out_of_range(batch.z.size());
  DeviceArray<float> u(batch.z.size());
  test::PreparedOnDevice prepared(place.format, z.data(), Batch::kTokens, place.latent);
  const cuda::ExpertScratch scratch{gate.data(),         up.data(),   hidden_tiles.data(),
                                    hidden_steps.data(), sums.data(), out_of_range.data()};
  EXPECT_EQ(
      cuda::routed_experts(bank.shape, table.data(), slots.data(), weights.data(), Batch::kEach,
                           prepared.view(), Batch::kTokens, scratch, u.data(), the_stream()),
      cudaSuccess);
  return u.values();
}

void expect_the_hosts_bits(const Bank& bank, const Batch& batch) {
  const std::vector<float> want = on_host(bank, batch, false);
  for (const auto order : {emulated::Order::kAscending, emulated::Order::kDescending}) {
    emulated::set_order(order);
    EXPECT_TRUE(same_bits(on_gpu(bank, batch), want));
  }
  emulated::set_order(emulated::Order::kAscending);
}

TEST(RoutedExpertsCuda, HasTheBitsOfTheHost) {
  Random random(1);
  for (const Format format : {Format::kMxfp4, Format::kBf16, Format::kF32}) {
    for (const int64_t latent : {32, 160}) {
      for (const int64_t inner : {32, 320, 2336}) {  // the last: more than eight bands
        if (inner == 2336 && (latent == 160 || format == Format::kF32)) continue;
        const Bank bank(random, format, latent, inner,
                        format == Format::kMxfp4 ? Activation::kSitu : Activation::kSilu);
        Batch batch;
        batch.z = random_activations(random, Batch::kTokens, latent);
        expect_the_hosts_bits(bank, batch);
      }
    }
  }
}

TEST(RoutedExpertsCuda, WhatHasNoIntegerIsNanAsOnTheHost) {
  Random random(2);
  for (const Format format : {Format::kMxfp4, Format::kBf16}) {
    Bank bank(random, format, 64, 320, Activation::kSilu);
    Batch batch;
    batch.z = random_activations(random, Batch::kTokens, 64);
    batch.z[5] = std::numeric_limits<float>::infinity();  // token 0
    expect_the_hosts_bits(bank, batch);
    batch.z[5] = 1.0F;
    batch.weights[1] = std::numeric_limits<float>::quiet_NaN();
    expect_the_hosts_bits(bank, batch);
    batch.weights[1] = 1.0F;
    bank.shape.fixed_point = 61;  // terms beyond 2^62
    expect_the_hosts_bits(bank, batch);
  }
}

TEST(AuditRoutedExperts, IsTheProductInDouble) {
  Random random(3);
  for (const Format format : {Format::kMxfp4, Format::kBf16}) {
    const Bank bank(random, format, 64, 320, Activation::kSitu);
    Batch batch;
    for (int64_t i = 0; i < Batch::kTokens * 64; ++i) {
      batch.z.push_back(std::normal_distribution<float>(0, 1)(random));
    }
    const auto visits = static_cast<size_t>(Batch::kTokens * Batch::kEach);
    DeviceArray<ExpertWeights> table(bank.table);
    DeviceArray<int32_t> slots(batch.slots);
    DeviceArray<float> weights(batch.weights);
    DeviceArray<double> z(std::vector<double>(batch.z.begin(), batch.z.end()));
    DeviceArray<double> hidden(visits * 320);
    DeviceArray<float> u(batch.z.size());
    ASSERT_EQ(cuda::audit::routed_experts(bank.shape, table.data(), slots.data(), weights.data(),
                                          Batch::kEach, z.data(), Batch::kTokens, hidden.data(),
                                          u.data(), the_stream()),
              cudaSuccess);
    const std::vector<float> got = u.values();
    const std::vector<float> want = on_host(bank, batch, true);
    double largest = 0;
    for (const float value : want)
      largest = std::max(largest, std::fabs(static_cast<double>(value)));
    ASSERT_GT(largest, 0);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(got[i]), static_cast<double>(want[i]), 1e-6 * largest);
    }
  }
}

}  // namespace
}  // namespace k3
