// The backend that runs on a GPU, with the bits of every other exact one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/backend.h"
#include "runtime/cuda_device.h"

namespace k3 {

struct CudaOptions {
  std::optional<int64_t> expert_bytes =
      {};               // for routed experts on the device; empty: what is free
  bool audits = false;  // products in double on float activations, see operations_cuda.h
};

// Throws Error when there is no GPU that this build runs on.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace k3
