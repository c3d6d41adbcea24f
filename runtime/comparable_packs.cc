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

void check_same_basis(const PackReader& pack, const PackReader& other) {
  if (pack.config().rotation == other.config().rotation) return;
  throw Error(other.path(), ": is in another basis than ", pack.path(),
              " (k3c inspect shows the rotation), and their hidden vectors are to be compared");
}

}  // namespace k3
