// The threads that a CPU operation spreads over, started once and kept ready.
//
// A token is thousands of small parallel loops with a few microseconds between them. TBB puts its
// workers to sleep in such gaps and takes hundreds of microseconds to wake them when the machine is
// busy, so that a loop is over before help arrives (kernels/README.md has the measurement). Here a
// worker that finds nothing to do looks for work without a system call for a while before it
// sleeps, and a loop never waits for a worker that has not come: whoever is there takes the next
// range, and the caller alone would finish them all.
#pragma once

#include <cstdint>

namespace k3 {

// Threads that parallel loops use now, the caller included: what TBB would use here, by the arena
// that the caller is in and tbb::global_control.
int64_t team_threads();

// A loop's body without its type: call(body, begin, end).
using RangeCall = void (*)(const void* body, int64_t begin, int64_t end);

// Calls body for the ranges [0, grain), [grain, 2 grain), ... that cover [0, count), on up to
// `threads` threads, and returns when all are done. A loop that starts while another one runs, be
// it inside that one's body or on another thread, runs on its own thread alone. Bodies do not
// throw.
void run_ranges(int64_t threads, int64_t count, int64_t grain, RangeCall call, const void* body);

}  // namespace k3
