#include <exception>
#include <iostream>
#include <new>

#include "kernels/floating_point_mode.h"
#include "runtime/command_line.h"

int main(int argc, char** argv) {
  try {
    k3::check_floating_point_mode();
    const int status = k3::run_command_line(argc, argv);
    // A result that did not reach its reader is no result.
    if (!std::cout.flush()) throw std::ios_base::failure("stdout: cannot write");
    return status;
  } catch (const std::bad_alloc&) {
    std::cerr << "k3exec: out of memory\n";
  } catch (const std::exception& error) {
    std::cerr << "k3exec: " << error.what() << '\n';
  }
  return 1;
}
