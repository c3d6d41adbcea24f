#include "tests/gpu/check_vectors.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "tests/gpu/copying_backend.h"
#include "tests/kernels/vector_cases.h"

namespace k3::test {
namespace {

constexpr const char* kFiles[] = {
    "matmul_f32",      "matmul_bf16", "matmul_int8",   "matmul_mxfp4", "matmul_ternary",
    "matmul_ternary2", "elementwise", "hadamard",      "norms",        "kda",
    "mla_attention",   "route",       "routed_experts"};

// Empty when the output is what the case says.
std::string fault_of(const VectorCase& want, const VectorOutput& got) {
  const auto count = static_cast<int64_t>(got.values.size());
  if (const auto* hash = want.find<uint64_t>(got.name + "_hash")) {
    return hash_outputs(got.values.data(), count) == *hash ? "" : "the hash differs";
  }
  if (!got.integers.empty()) {
    const auto* integers = want.at<int32_t>(got.name);
    for (size_t i = 0; i < got.integers.size(); ++i) {
      if (got.integers[i] != integers[i]) return "value " + std::to_string(i) + " differs";
    }
    return "";
  }
  const auto* values = want.at<float>(got.name);
  for (size_t i = 0; i < got.values.size(); ++i) {
    if (std::isnan(got.values[i]) && std::isnan(values[i])) continue;
    if (std::bit_cast<uint32_t>(got.values[i]) != std::bit_cast<uint32_t>(values[i])) {
      return "value " + std::to_string(i) + " is " + std::to_string(got.values[i]) + ", expected " +
             std::to_string(values[i]);
    }
  }
  return "";
}

int64_t products_of(const VectorCase& one) {
  if (one.operation() != "matmul") return 0;
  const auto& sizes = one.sizes();  // format, rows, cols, tokens
  return sizes[1] * sizes[2] * sizes[3];
}

}  // namespace

std::vector<VectorCheck> check_vectors(const std::string& folder, int64_t most_products) {
  CopyingBackend backend;
  std::vector<VectorCheck> checks;
  for (const std::string file : kFiles) {
    VectorCheck check{.file = file, .cases = 0, .faults = {}};
    for (const VectorCase& one : read_vectors(folder + "/" + file + ".bin")) {
      if (products_of(one) > most_products) continue;
      ++check.cases;
      for (const VectorOutput& output : run_vector(backend, one)) {
        const std::string fault = fault_of(one, output);
        if (!fault.empty()) {
          check.faults.push_back(describe(one) + ", " + output.name + ": " + fault);
        }
      }
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace k3::test
