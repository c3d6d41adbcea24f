// The readers that meet files of unknown origin, each as one function of bytes: libFuzzer drives
// them in the fuzz preset (fuzz_main.cc), and corpus_test.cc replays the corpus in every build.
//
// Any input must end in a result or in Error, and an Error in one line. All else is a fault: a
// failed K3_CHECK, another exception, a sanitizer's report, a length allocated before it was
// checked.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace k3 {

// What became of an input that broke nothing.
enum class FuzzOutcome { kAccepted, kRefused };

struct FuzzTarget {
  std::string_view name;   // and the folder of its corpus
  std::string_view input;  // what its bytes mean
  FuzzOutcome (*run)(std::span<const std::byte> input);
};

// header, index, config, pack.
std::span<const FuzzTarget> fuzz_targets();

// The target of that name; null when there is none.
const FuzzTarget* find_fuzz_target(std::string_view name);

}  // namespace k3
