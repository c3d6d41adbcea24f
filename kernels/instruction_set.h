// Which instruction set the *_cpu.cc files run: the best that this machine and this build have, or
// one that was asked for. Results do not depend on it, only speed does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace k3 {

// The names that force_instruction_set takes on this machine, best first: of avx512vnni, avx512,
// avx2, sse4, sve2, sve, neon and portable those that it can run.
std::vector<std::string> instruction_sets();

// Runs every kernel on that one from now on (or, where a file has no copy for it, on the portable
// one). Call before other threads run kernels. Throws Error for a name that is not in the list.
void force_instruction_set(std::string_view name);

// The one in use.
std::string chosen_instruction_set();

}  // namespace k3
