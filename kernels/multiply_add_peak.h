// The most multiply-adds this processor can do: what a small batch is measured against.
#pragma once

#include <cstdint>

namespace k3::cpu {

// Runs about `count` multiply-adds of int16 codes with int16 weights into int32 sums, all in
// registers, and returns how many those were. Adds what they came to, which nobody needs, to `sum`,
// so that they have to be done.
int64_t run_multiply_adds(int64_t count, int64_t& sum);

}  // namespace k3::cpu
