// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace k3 {

// The lesser of the kernel's MemAvailable and what the control group (v2, then v1) still allows, in
// bytes. MemFree, and what CUDA reports on unified-memory machines, are wrong answers after any
// large file was read.
int64_t available_memory_bytes();

}  // namespace k3
