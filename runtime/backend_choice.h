// Which backend runs a pack, and what is said about it at the start.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/backend.h"
#include "schema/pack_reader.h"

namespace k3 {

struct BackendOptions {
  std::string name = "cpu";  // cpu, cuda, auto or reference
  std::optional<double> gpu_experts_gb =
      {};                          // 10^9 bytes of the GPU for experts; empty: what is free
  std::string numerics = "exact";  // or fp64
};

struct BackendChoice {
  std::unique_ptr<Backend> backend;
  std::string note;  // one line about a GPU, or why none; empty when there is nothing to say
};

// `auto` is cuda where this build has it, there is a GPU that its kernels run on, and the trunk and
// one token's experts fit into its memory; else cpu. Nothing else is ever taken instead of what was
// asked for. Throws Error when that cannot be had, and for options that it would not heed.
BackendChoice choose_backend(const BackendOptions& options, const PackReader& pack);

}  // namespace k3
