// Holds the GPU's kernels to the committed vectors.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace k3::test {

struct VectorCheck {
  std::string file;
  int64_t cases = 0;
  std::vector<std::string> faults;  // one line for each output that has other bits
};

// Runs every case of the files of tests/golden/kernels, in `folder`. Throws std::runtime_error when
// one cannot be read, or when CUDA fails. Matrix products of more than `most_products` numbers are
// left out, for an emulated GPU.
std::vector<VectorCheck> check_vectors(const std::string& folder,
                                       int64_t most_products = std::numeric_limits<int64_t>::max());

}  // namespace k3::test
