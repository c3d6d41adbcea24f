// k3c: a thin main. The one place that turns an exception into a line and an exit status.
#include <exception>
#include <iostream>
#include <new>

#include "compiler/command_line.h"

int main(int argc, char** argv) {
  try {
    const int status = k3::run_command_line(argc, argv);
    // A result that did not reach its reader is no result.
    if (!std::cout.flush()) throw std::ios_base::failure("stdout: cannot write");
    return status;
  } catch (const std::bad_alloc&) {
    std::cerr << "k3c: out of memory\n";
  } catch (const std::exception& error) {
    std::cerr << "k3c: " << error.what() << '\n';
  }
  return 1;
}
