// Writes the test vectors of the kernels: write_vectors FOLDER
#include <cstdio>

#include "tests/kernels/exact_backend.h"
#include "tests/kernels/vector_cases.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_vectors FOLDER\n", stderr);
    return 2;
  }
  k3::ExactBackend exact;
  for (const k3::VectorFileCases& file : k3::make_vectors(exact)) {
    k3::write_vectors(std::string(argv[1]) + "/" + file.file + ".bin", file.cases);
  }
  return 0;
}
