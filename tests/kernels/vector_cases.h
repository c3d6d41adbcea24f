// The test vectors: which calls there are, with their inputs, and how a backend runs one.
// tests/golden/kernels/README.md says what the sizes and arrays of each operation are.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/attention_residual.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/short_conv.h"
#include "runtime/backend.h"
#include "tests/kernels/counted_values.h"
#include "tests/kernels/vector_file.h"

namespace k3 {

inline constexpr Format kAllFormats[] = {Format::kF32,   Format::kBf16,    Format::kInt8,
                                         Format::kMxfp4, Format::kTernary, Format::kTernary2};
inline constexpr int64_t kStored = -1;  // instead of a seed: inputs are in the file

inline std::vector<float> counted_normals(uint64_t seed, int64_t count, float deviation = 1.0F) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(counted_normal(seed, i) * deviation * 0x1.bp0F);  // 1.6875 = 1 / 0.59
  }
  return values;
}

// What an operation gave, by the name of the array that holds it: floats or integers.
struct VectorOutput {
  std::string name;
  std::vector<float> values;
  std::vector<int32_t> integers;
};

// The inputs of a matmul vector; counted ones are made here.
struct MatmulVector {
  MatrixView weights;
  int64_t tokens = 0;
  const float* x = nullptr;
  AlignedBytes made_weights;
  std::vector<float> made_x;

  explicit MatmulVector(const VectorCase& in) : tokens(in.size(3)) {
    const auto format = static_cast<Format>(in.size(0));
    const int64_t rows = in.size(1);
    const int64_t cols = in.size(2);
    const std::byte* bytes = nullptr;
    if (in.size(4) == kStored) {
      bytes = reinterpret_cast<const std::byte*>(in.at<uint8_t>("weights"));
      x = in.at<float>("x");
    } else {
      const auto seed = static_cast<uint64_t>(in.size(4));
      made_weights = AlignedBytes(counted_matrix_bytes(format, rows, cols));
      fill_counted_matrix(seed, format, rows, cols, made_weights.data());
      made_x.resize(static_cast<size_t>(tokens * cols));
      fill_counted_activations(seed, tokens, cols, made_x.data());
      bytes = made_weights.data();
      x = made_x.data();
    }
    weights = view_counted_matrix(format, rows, cols, bytes);
  }
};

// The inputs of a routed_experts vector.
struct RoutedExpertsVector {
  RoutedExpertsShape shape;
  std::vector<ExpertWeights> bank;
  std::vector<const ExpertWeights*> experts;

  explicit RoutedExpertsVector(const VectorCase& in) {
    shape.place = {static_cast<Format>(in.size(0)), in.size(1), in.size(2)};
    shape.activation = static_cast<Activation>(in.size(7));
    shape.fixed_point = static_cast<int32_t>(in.size(6));
    shape.situ_beta = in.at<double>("betas")[0];
    shape.situ_linear_beta = in.at<double>("betas")[1];
    const auto* extents = reinterpret_cast<const std::byte*>(in.at<uint8_t>("extents"));
    const uint8_t* least = in.at<uint8_t>("least_exponents");
    const int64_t stride = align_up(shape.place.extent_bytes(), kPlaneAlignment);
    for (int64_t e = 0; e < in.size(5); ++e) {
      bank.push_back({extents + e * stride, {least[3 * e], least[3 * e + 1], least[3 * e + 2]}});
    }
    const int32_t* slots = in.at<int32_t>("slots");
    for (int64_t i = 0; i < in.size(3) * in.size(4); ++i) {
      experts.push_back(slots[i] < 0 ? nullptr : &bank[static_cast<size_t>(slots[i])]);
    }
  }
};

// What `backend` gives for the case's inputs.
std::vector<VectorOutput> run_vector(Backend& backend, const VectorCase& in);

// All cases, with the outputs of `exact` added; sorted into files by name.
struct VectorFileCases {
  std::string file;
  std::vector<VectorCase> cases;
};
std::vector<VectorFileCases> make_vectors(Backend& exact);

}  // namespace k3
