#include "runtime/comparable_packs.h"

#include "schema/error.h"

namespace k3 {

void check_comparable(const PackReader& pack, const PackReader& other) {
  if (pack.side_file("tiktoken.model") != other.side_file("tiktoken.model") ||
      pack.config().vocab_size != other.config().vocab_size) {
    throw Error(other.path(), ": has another vocabulary than ", pack.path());
  }
  if (pack.config().layers != other.config().layers ||
      pack.config().experts_per_token != other.config().experts_per_token) {
    throw Error(other.path(), ": has other layers than ", pack.path());
  }
}

}  // namespace k3
