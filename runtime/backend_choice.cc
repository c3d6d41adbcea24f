#include "runtime/backend_choice.h"

#include <cstdio>

#include "schema/error.h"
#include "schema/memory_need.h"
#ifdef K3_HAS_CUDA
#include "runtime/cuda_backend.h"
#endif

namespace k3 {
namespace {

void check_options(const BackendOptions& options) {
  if (options.numerics != "exact" && options.numerics != "fp64") {
    throw Error("--numerics is ", options.numerics, ", expected exact or fp64");
  }
  if (options.gpu_experts_gb && !(*options.gpu_experts_gb > 0 && *options.gpu_experts_gb < 1e6)) {
    throw Error("--gpu-experts-gb is ", *options.gpu_experts_gb, ", expected more than 0");
  }
}

// Options that only a GPU heeds.
void check_host_options(const BackendOptions& options) {
  if (options.numerics == "fp64") {
    throw Error(
        "--numerics fp64 needs --backend cuda; on the host, --backend reference computes in "
        "double");
  }
  if (options.gpu_experts_gb) throw Error("--gpu-experts-gb needs --backend cuda");
}

BackendChoice host_backend(const BackendOptions& options, std::string_view name, std::string note) {
  check_host_options(options);
  return {make_backend(name), std::move(note)};
}

#ifdef K3_HAS_CUDA

CudaOptions cuda_options(const BackendOptions& options) {
  CudaOptions cuda{.expert_bytes = {}, .audits = options.numerics == "fp64"};
  if (options.gpu_experts_gb)
    cuda.expert_bytes = static_cast<int64_t>(*options.gpu_experts_gb * 1e9);
  return cuda;
}

std::string gigabytes(int64_t bytes) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f GB", static_cast<double>(bytes) * 1e-9);
  return text;
}

BackendChoice best_backend(const BackendOptions& options, const PackReader& pack) {
  const MemoryNeed need = memory_need(pack.index().content);
  try {
    const CudaDevice device = open_cuda_device();
    const int64_t usable = usable_device_bytes(free_device_bytes(device));
    const int64_t needed = need.least_bytes();
    if (needed > usable) {
      return host_backend(options, "cpu",
                          "backend cpu: the trunk and one token's experts take " +
                              gigabytes(needed) + ", " + device.describe() + " has " +
                              gigabytes(usable) + " free for them");
    }
    return {make_cuda_backend(cuda_options(options)), "backend cuda: " + device.describe() + ", " +
                                                          gigabytes(usable) +
                                                          " of it free for weights"};
  } catch (const Error& error) {
    return host_backend(options, "cpu", std::string("backend cpu: ") + error.what());
  }
}

BackendChoice cuda_backend(const BackendOptions& options) {
  const CudaDevice device = open_cuda_device();
  return {make_cuda_backend(cuda_options(options)), "backend cuda: " + device.describe()};
}

#else

BackendChoice best_backend(const BackendOptions& options, const PackReader& /*pack*/) {
  return host_backend(options, "cpu", "backend cpu: this build has no CUDA");
}

BackendChoice cuda_backend(const BackendOptions& /*options*/) {
  return {make_backend("cuda"), {}};  // which refuses
}

#endif

}  // namespace

BackendChoice choose_backend(const BackendOptions& options, const PackReader& pack) {
  check_options(options);
  if (options.name == "auto") return best_backend(options, pack);
  if (options.name == "cuda") return cuda_backend(options);
  return host_backend(options, options.name, {});
}

}  // namespace k3
