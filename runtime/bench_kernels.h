// k3exec bench --kernels: speed of each kernel on this machine.
#pragma once

#include <ostream>
#include <string>

#include "runtime/kernel_benchmark.h"

namespace k3 {

struct BenchKernelsOptions {
  std::string backend = "cpu";
  KernelBenchmarkOptions benchmark;
  bool json = false;
};

// Prints a line, or with `json` an object of an array, for the read bandwidth of all cores, the
// multiply-adds of one core, and each kernel. Throws Error.
void bench_kernels(const BenchKernelsOptions& options, std::ostream& out);

}  // namespace k3
