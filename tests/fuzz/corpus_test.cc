// Replays what the fuzzer found worth keeping, and the near neighbours of sound inputs, in every
// build: under ASan and UBSan these runs are the guard, elsewhere the aborts in fuzz_targets.cc.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "compiler/pack_encode.h"
#include "schema/little_endian.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/temp_folder.h"
#include "tests/tiny_pack.h"

namespace k3 {
namespace {

using Bytes = std::vector<std::byte>;

const std::string kCorpus = K3_SOURCE_DIR "/tests/fuzz/corpus/";
const std::string kNano = K3_SOURCE_DIR "/examples/nano/checkpoint/";

Bytes after_length(uint64_t length, std::span<const std::byte> bytes) {
  Bytes input(8 + bytes.size());
  store_little_endian(length, input.data());
  std::copy(bytes.begin(), bytes.end(), input.begin() + 8);
  return input;
}

// An input that the target must accept.
Bytes sound_input(std::string_view target) {
  if (target == "header") {
    const Bytes file = file_bytes(kNano + "model-00001-of-000009.safetensors");
    const auto header = 8 + load_little_endian<uint64_t>(file.data());
    return after_length(file.size(), std::span(file).first(header));
  }
  if (target == "index") return file_bytes(kNano + "model.safetensors.index.json");
  if (target == "config") return file_bytes(kNano + "config.json");
  const TinyPack pack;
  const auto offset =
      static_cast<uint64_t>(align_up(static_cast<int64_t>(pack.data.size()), kExtentAlignment));
  const std::vector<std::byte> index =
      encode_index(encode_content(pack.index.content), pack.index.provenance, pack.index.receipts,
                   pack.index.retired);
  return after_length(offset, index);
}

class Corpus : public testing::TestWithParam<FuzzTarget> {};

TEST_P(Corpus, EveryFileEndsInAResultOrInOneLine) {
  int64_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(kCorpus + std::string(GetParam().name))) {
    SCOPED_TRACE(entry.path().string());
    GetParam().run(file_bytes(entry.path().string()));
    ++files;
  }
  EXPECT_GT(files, 0);
}

TEST_P(Corpus, SoundInputIsAccepted) {
  EXPECT_EQ(GetParam().run(sound_input(GetParam().name)), FuzzOutcome::kAccepted);
}

TEST_P(Corpus, NeighboursOfSoundInputEndInAResultOrInOneLine) {
  const Bytes sound = sound_input(GetParam().name);
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    Bytes cut(sound.begin(),
              sound.begin() + static_cast<std::ptrdiff_t>(random() % (sound.size() + 1)));
    GetParam().run(cut);
    Bytes flipped = sound;
    for (int flips = 0; flips <= i % 4; ++flips) {
      flipped[random() % flipped.size()] ^= static_cast<std::byte>(1u << random() % 8);
    }
    GetParam().run(flipped);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Corpus, testing::ValuesIn(fuzz_targets()),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace k3
