// The packs that the runtime's tests run; the fixtures in tests/CMakeLists.txt make them.
//
// nano is the bundled, trained model. In it many widths are equal, so a buffer of the wrong one
// goes unnoticed; in odd (897 experts, no width twice, no multiple of a block or a register) it
// does not. odd_int8 is the same with its matrices in int8, whose blocks of 160 then end in
// padding. linear is the second family in small: softplus decay, low-rank gate, plain residual
// stream, bf16 experts on the full width.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace k3::test {

inline constexpr const char* kPacks[] = {"nano", "odd", "odd_int8", "linear"};

inline std::string pack_path(const std::string& name) {
  return K3_BINARY_DIR "/" + name + ".k3pack";
}

// A prompt of ids that every one of them has.
inline const std::vector<int32_t> kPrompt = {132, 84, 263, 402, 291, 905, 77, 310, 512};

// Instantiates a suite of TestWithParam<const char*> over all packs.
#define K3_FOR_EVERY_PACK(suite)                                              \
  INSTANTIATE_TEST_SUITE_P(Packs, suite, testing::ValuesIn(k3::test::kPacks), \
                           [](const auto& instance) { return std::string(instance.param); })

}  // namespace k3::test
