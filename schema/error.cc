#include "schema/error.h"

#include <cstdio>
#include <cstdlib>

namespace k3 {

void fail_check(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: internal error: %s does not hold; please report this\n", file, line,
               condition);
  std::abort();
}

}  // namespace k3
