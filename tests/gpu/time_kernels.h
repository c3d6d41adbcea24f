// Times the GPU's kernels against the speed at which the card reads its memory.
#pragma once

#include <iosfwd>

namespace k3::test {

struct TimingOptions {
  bool small = false;  // shapes so small that they only show that everything runs
};

// Prints one table. Throws std::runtime_error when CUDA fails.
void time_kernels(const TimingOptions& options, std::ostream& out);

}  // namespace k3::test
