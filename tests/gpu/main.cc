// gpu_kernels VECTORS: checks every operation of the card present against the committed vectors,
// then times it. Exit status 1 when a bit differs.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>

#include "tests/gpu/check_vectors.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/time_kernels.h"

namespace {

void print_device() {
  cudaDeviceProp device = {};
  int driver = 0;
  k3::test::check_cuda(cudaGetDeviceProperties(&device, 0));
  k3::test::check_cuda(cudaDriverGetVersion(&driver));
  std::printf(
      "%s, sm_%d%d, %d multiprocessors, %.1f GB, second-level cache %.1f MB, driver %d.%d\n",
      device.name, device.major, device.minor, device.multiProcessorCount,
      static_cast<double>(device.totalGlobalMem) * 1e-9,
      static_cast<double>(device.l2CacheSize) * 1e-6, driver / 1000, driver % 1000 / 10);
}

bool check(const char* folder) {
  bool conforms = true;
  for (const k3::test::VectorCheck& file : k3::test::check_vectors(folder)) {
    std::printf("  %-16s %3lld calls, %s\n", file.file.c_str(), static_cast<long long>(file.cases),
                file.faults.empty() ? "the committed bits" : "OTHER BITS");
    for (const std::string& fault : file.faults) std::printf("    %s\n", fault.c_str());
    conforms = conforms && file.faults.empty() && file.cases > 0;
  }
  return conforms;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: gpu_kernels FOLDER_OF_VECTORS\n");
    return 2;
  }
  try {
    print_device();
    const bool conforms = check(argv[1]);
    std::fflush(stdout);
    k3::test::time_kernels({}, std::cout);
    return conforms ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_kernels: %s\n", error.what());
    return 1;
  }
}
