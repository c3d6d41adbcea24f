// Holds the GPU's kernels to the committed vectors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace k3::test {

struct VectorCheck {
  std::string file;
  int64_t cases = 0;
  std::vector<std::string> faults;  // one line for each output that has other bits
};

// Runs every case of the files of tests/golden/kernels, in `folder`. Throws std::runtime_error when
// one cannot be read, or when CUDA fails.
std::vector<VectorCheck> check_vectors(const std::string& folder);

}  // namespace k3::test
