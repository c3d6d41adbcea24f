// libFuzzer's entry for the target that K3_FUZZ_TARGET names; built by the fuzz preset alone:
//   cmake --preset fuzz && cmake --build --preset fuzz
//   build/fuzz/tests/fuzz_header -max_total_time=600 NEW_FOLDER tests/fuzz/corpus/header

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const k3::FuzzTarget* const target = k3::find_fuzz_target(K3_FUZZ_TARGET);
  target->run({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
