// The command line of k3exec.
#pragma once

namespace k3 {

// Parses, runs the sub-command, and returns the exit status: 0, or 2 for a wrong command line.
// Throws Error.
int run_command_line(int argc, char** argv);

}  // namespace k3
