#include <exception>
#include <iostream>

#include "kernels/floating_point_mode.h"
#include "runtime/command_line.h"

int main(int argc, char** argv) {
  try {
    k3::check_floating_point_mode();
    return k3::run_command_line(argc, argv);
  } catch (const std::bad_alloc&) {
    std::cerr << "k3exec: out of memory\n";
  } catch (const std::exception& error) {
    std::cerr << "k3exec: " << error.what() << '\n';
  }
  return 1;
}
