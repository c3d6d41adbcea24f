// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace k3 {

// The least of the kernel's MemAvailable and what each control group that this process is in (v2 or
// v1, its own and those around it) still allows, in bytes. Pages of files that the kernel would
// drop count as free in both. MemFree, and what CUDA reports on unified-memory machines, are wrong
// answers after any large file was read. `root` stands before /proc and /sys, for tests.
int64_t available_memory_bytes(const std::string& root = "");

}  // namespace k3
