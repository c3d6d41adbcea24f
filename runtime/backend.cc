#include "runtime/backend.h"

#include "schema/error.h"

namespace k3 {

std::unique_ptr<Backend> make_backend(std::string_view name) {
  if (name == "cpu") return make_cpu_backend();
  if (name == "reference") return make_reference_backend();
  throw Error("--backend is ", name, ", expected cpu or reference");
}

}  // namespace k3
