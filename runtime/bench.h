// k3exec bench: speed of a pack on this machine.
#pragma once

#include <ostream>

#include "runtime/benchmark.h"
#include "runtime/loaded_model.h"

namespace k3 {

struct BenchOptions {
  LoadOptions load;
  BenchmarkOptions benchmark;
  bool json = false;
};

// Prints prefill and decode rates with their spread, then each operation's time, bytes and share of
// the read bandwidth that was measured beside its rounds. Throws Error.
void bench(const BenchOptions& options, std::ostream& out);

}  // namespace k3
