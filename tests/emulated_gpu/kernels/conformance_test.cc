// The GPU's kernels, on the emulated GPU, against the vectors that every backend is held to; the
// same code checks a real one in tests/gpu.
#include <gtest/gtest.h>

#include <string>

#include "tests/gpu/check_vectors.h"

namespace k3::test {
namespace {

TEST(ConformanceCuda, EveryOperationHasTheBitsOfTheCommittedVectors) {
  constexpr int64_t kMostProducts = int64_t{1} << 23;
  const std::string folder = K3_SOURCE_DIR "/tests/golden/kernels";
  for (const VectorCheck& check : check_vectors(folder, kMostProducts)) {
    EXPECT_GT(check.cases, 0) << check.file;
    for (const std::string& fault : check.faults) ADD_FAILURE() << fault;
  }
}

}  // namespace
}  // namespace k3::test
