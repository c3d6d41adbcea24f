// The numerics need IEEE arithmetic as a process starts with it; a library or a start-up object
// linked with -ffast-math can change the processor's mode for everybody.
#pragma once

namespace k3 {

// Throws Error unless float and double arithmetic on this thread rounds to nearest and keeps
// subnormal numbers, as results and as operands. Call it first in main; threads inherit the mode.
void check_floating_point_mode();

}  // namespace k3
