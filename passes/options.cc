#include "passes/options.h"

namespace k3 {

std::string precision_name(Precision precision) {
  return precision == Precision::kInt8 ? "int8" : "bf16";
}

std::vector<std::pair<std::string, std::string>> canonical_options(const Options& options) {
  return {{"trunk", precision_name(options.ternary_trunk.trunk)},
          {"head", precision_name(options.ternary_trunk.head)}};
}

}  // namespace k3
