// The sub-commands of k3c and their flags; the only file that knows the flag library.
#pragma once

namespace k3 {

// Parses the arguments and runs what they ask for. Returns the exit status: 0, 1 when `verify`
// found faults, 2 for bad usage. Throws Error for bad input.
int run_command_line(int argc, char** argv);

}  // namespace k3
