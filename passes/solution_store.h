// The work folder of a compile: finished matrices, each the bytes of its extent, under a name that
// says what they were solved from.
//
// Solving K3's trunk takes hours and encoding it minutes, so what is solved is on disk at once: a
// killed compile goes on where it was, and a second one with the same weights, calibration and
// options finds all its work done. A record is never trusted further than its hash, and a damaged
// one is as good as none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "passes/matrix_loss.h"

namespace k3 {

struct StoredSolution {
  uint64_t source_xxh3 = 0;  // of the matrix' bytes in the checkpoint
  MatrixLoss loss;
  std::vector<std::byte> extent;
};

class SolutionStore {
 public:
  // `folder` is created with the first solution; nothing else is ever put into it.
  explicit SolutionStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

  // The solution kept under `key`; nothing when there is none of `extent_bytes` that is whole.
  std::optional<StoredSolution> find(uint64_t key, int64_t extent_bytes) const;
  // Keeps a solution: afterwards it is there as a whole, or as before. Throws Error.
  void put(uint64_t key, const StoredSolution& solution) const;
  // Removes all solutions, and the folder unless something else is in it.
  void remove() const;

 private:
  std::string path(uint64_t key) const;

  std::string folder_;
};

}  // namespace k3
