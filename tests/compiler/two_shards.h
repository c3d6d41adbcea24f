// A small checkpoint that is sound, for tests that break it.
#pragma once

#include <string>

#include "tests/compiler/checkpoint_folder.h"

namespace k3::test {

inline const std::string kFirst = "model-00001-of-000002.safetensors";
inline const std::string kSecond = "model-00002-of-000002.safetensors";

// Two shards: a and b in the first, c in the second, 16 bytes.
class TwoShardsFolder : public CheckpointFolder {
 public:
  TwoShardsFolder() {
    write("config.json", "{}");
    write_shard(kFirst, {{"a", Dtype::kU8, {4}}, {"b", Dtype::kBf16, {2}}});
    write_shard(kSecond, {{"c", Dtype::kF32, {2}}});
    write_index({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}}, R"({"total_size":16})");
  }
};

}  // namespace k3::test
