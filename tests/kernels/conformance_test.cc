// One body for every backend: the committed vectors, each operation and format, bit by bit. A
// backend that fails here breaks the numeric contract, whatever its own tests say.
#include <gtest/gtest.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <cstring>
#include <memory>

#include "tests/kernels/bit_equality.h"
#include "tests/kernels/decoded_weight.h"
#include "tests/kernels/exact_backend.h"
#include "tests/kernels/forced_target.h"
#include "tests/kernels/vector_cases.h"

namespace k3 {
namespace {

constexpr const char* kFolder = K3_SOURCE_DIR "/tests/golden/kernels/";

// Built from the committed files alone, so that a file that no code makes any more is read too.
std::vector<VectorFileCases> stored_vectors() {
  std::vector<VectorFileCases> files;
  for (const std::string name : {"matmul_f32", "matmul_bf16", "matmul_int8", "matmul_mxfp4",
                                 "matmul_ternary", "matmul_ternary2", "elementwise", "hadamard",
                                 "norms", "kda", "mla_attention", "route", "routed_experts"}) {
    files.push_back({name, read_vectors(std::string(kFolder).append(name).append(".bin"))});
  }
  return files;
}

void expect_the_bits(Backend& backend, const std::vector<VectorFileCases>& files) {
  for (const VectorFileCases& file : files) {
    for (const VectorCase& one : file.cases) {
      for (const VectorOutput& output : run_vector(backend, one)) {
        const std::string place = describe(one) + ", " + output.name;
        if (const auto* hash = one.find<uint64_t>(output.name + "_hash")) {
          EXPECT_EQ(hash_outputs(output.values.data(), static_cast<int64_t>(output.values.size())),
                    *hash)
              << place;
        } else if (!output.integers.empty()) {
          EXPECT_EQ(std::memcmp(output.integers.data(), one.at<int32_t>(output.name),
                                output.integers.size() * sizeof(int32_t)),
                    0)
              << place;
        } else {
          EXPECT_TRUE(same_bits(output.values, {one.at<float>(output.name), output.values.size()}))
              << place;
        }
      }
    }
  }
}

TEST(Conformance, TheStoredVectorsAreWhatTheContractGives) {
  ExactBackend exact;
  const std::vector<VectorFileCases> made = make_vectors(exact);
  const std::vector<VectorFileCases> stored = stored_vectors();
  ASSERT_EQ(made.size(), stored.size());
  for (size_t f = 0; f < made.size(); ++f) {
    ASSERT_EQ(made[f].file, stored[f].file);
    ASSERT_EQ(made[f].cases.size(), stored[f].cases.size()) << made[f].file;
    for (size_t c = 0; c < made[f].cases.size(); ++c) {
      const VectorCase& want = made[f].cases[c];
      const VectorCase& got = stored[f].cases[c];
      ASSERT_EQ(describe(got), describe(want));
      ASSERT_EQ(got.arrays().size(), want.arrays().size()) << describe(want);
      for (size_t a = 0; a < want.arrays().size(); ++a) {
        const VectorArray& left = got.arrays()[a];
        const VectorArray& right = want.arrays()[a];
        ASSERT_STREQ(left.name, right.name);
        ASSERT_EQ(left.bytes.size_bytes(), right.bytes.size_bytes());
        if (std::string_view(right.type) == "f32") {
          const size_t count = static_cast<size_t>(right.bytes.size_bytes()) / sizeof(float);
          EXPECT_TRUE(same_bits({reinterpret_cast<const float*>(left.bytes.data()), count},
                                {reinterpret_cast<const float*>(right.bytes.data()), count}))
              << describe(want) << ", " << right.name
              << ": if the contract was meant to change, run write_vectors";
        } else {
          EXPECT_EQ(std::memcmp(left.bytes.data(), right.bytes.data(),
                                static_cast<size_t>(right.bytes.size_bytes())),
                    0)
              << describe(want) << ", " << right.name;
        }
      }
    }
  }
}

TEST(Conformance, TheCpuGivesTheBitsOnEveryInstructionSetAndThreadCount) {
  const std::vector<VectorFileCases> files = stored_vectors();
  const std::unique_ptr<Backend> cpu = make_backend("cpu");
  for (const int64_t target : testable_targets()) {
    const ForcedTarget forced(target);
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", threads " + std::to_string(threads));
      const tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                                      static_cast<size_t>(threads));
      tbb::task_arena arena(threads);
      arena.execute([&] { expect_the_bits(*cpu, files); });
    }
  }
}

// The bound of matmul.h, from the decoded weights.
TEST(Conformance, ExactProductsAreWithinTheirBoundOfReference) {
  ExactBackend exact;
  const std::unique_ptr<Backend> reference = make_backend("reference");
  for (const VectorFileCases& file : stored_vectors()) {
    for (const VectorCase& one : file.cases) {
      if (one.operation() != "matmul") continue;
      const MatmulVector vector(one);
      const MatrixView& w = vector.weights;
      const std::vector<float> got = run_vector(exact, one)[0].values;
      const std::vector<float> want = run_vector(*reference, one)[0].values;
      std::vector<double> weight(static_cast<size_t>(w.cols));
      const int64_t step_rows = one.size(4) == kStored ? 1 : 37;  // the large ones take a while
      for (int64_t r = 0; r < w.rows; r += step_rows) {
        for (int64_t c = 0; c < w.cols; ++c) {
          weight[static_cast<size_t>(c)] = std::fabs(decoded_weight(w, r, c));
        }
        for (int64_t t = 0; t < vector.tokens; ++t) {
          const float* x = vector.x + t * w.cols;
          double products = 0;
          double weights = 0;
          float largest = 0;
          for (int64_t c = 0; c < w.cols; ++c) {
            products += weight[static_cast<size_t>(c)] * std::fabs(static_cast<double>(x[c]));
            weights += weight[static_cast<size_t>(c)];
            largest = std::fmax(largest, std::fabs(x[c]));
          }
          if (!std::isfinite(products)) continue;
          const double step =
              reads_codes(w.format) ? std::ldexp(1.0, activation_exponent(largest) - 1) : 0.0;
          const double b = static_cast<double>(w.cols) * 0x1p-52 * products + step * weights;
          const auto at = static_cast<size_t>(t * w.rows + r);
          const auto sum = static_cast<double>(want[at]);
          if (!std::isfinite(sum) || !std::isfinite(got[at])) continue;  // beyond float
          EXPECT_LE(std::fabs(static_cast<double>(got[at]) - sum),
                    b + 0x1p-22 * (std::fabs(sum) + b) + 0x1p-148)
              << describe(one) << ", row " << r << ", token " << t;
        }
      }
    }
  }
}

}  // namespace
}  // namespace k3
