#include "compiler/diff.h"

#include <gtest/gtest.h>

#include <functional>

#include "compiler/config_fields.h"
#include "tests/temp_folder.h"
#include "tests/tiny_pack.h"

namespace k3 {
namespace {

// The tiny pack before and after `change`, compared; one line per difference.
std::vector<std::string> differences_after(const std::function<void(TinyPack&)>& change) {
  const TempFolder folder;
  const TinyPack before;
  TinyPack after;
  change(after);
  const PackReader a(folder.write("a", before.image()));
  const PackReader b(folder.write("b", after.image()));
  std::vector<std::string> lines;
  for (const Difference& one : find_differences(a, b)) {
    lines.push_back(one.subject + ": " + one.what + ": " + one.a.value_or("-") + " | " +
                    one.b.value_or("-"));
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(Diff, APackDoesNotDifferFromItself) {
  EXPECT_EQ(differences_after([](TinyPack&) {}), Lines{});
}

TEST(Diff, NamesAFieldOfTheConfig) {
  EXPECT_EQ(differences_after([](TinyPack& pack) {
              pack.index.content.config.rms_norm_epsilon = 0.5;
              pack.index.content.config.eos_token_id = 0;
            }),
            (Lines{"config: rms_norm_epsilon: 1e-05 | 0.5", "config: eos_token_id: 2 | 0"}));
}

TEST(Diff, NamesExpertsByTheirNumberInTheCheckpoint) {
  // The bank keeps 2, 0, 3 of the four.
  EXPECT_EQ(differences_after([](TinyPack& pack) {
              std::swap(pack.index.content.banks[0].experts[0].source_id,
                        pack.index.content.banks[0].experts[1].source_id);
              pack.index.content.banks[0].fixed_point = 41;
            }),
            (Lines{"bank of layer 1: fixed point: 40 | 41",
                   "bank of layer 1: order of experts: one | another",
                   "bank of layer 1: experts with other bytes: 0, 2 | 0, 2",
                   "bank of layer 1: experts from other source bytes: 0, 2 | 0, 2"}));
  EXPECT_EQ(differences_after(
                [](TinyPack& pack) { pack.index.content.banks[0].experts[0].source_id = 1; }),
            (Lines{"bank of layer 1: experts only in A: 2 | -",
                   "bank of layer 1: experts only in B: - | 1"}));
}

TEST(Diff, NamesOptionsPassNumbersAndWhatOnlyOnePackHas) {
  EXPECT_EQ(differences_after([](TinyPack& pack) {
              pack.index.provenance.options = {{"trunk", "int8"}};
              pack.index.provenance.passes = {{"census", {{"tensors", 2.5}}}};
              pack.index.provenance.compiler = "other 2";
            }).size(),
            3u);
}

TEST(ConfigFields, ShowEveryFieldThatCanDiffer) {
  const ModelConfig config = tiny_config();
  EXPECT_EQ(config_fields(config), config_fields(config));
  ModelConfig changed = config;
  changed.layers[0].ffn = config.layers[0].ffn == FfnKind::kDense ? FfnKind::kMoe : FfnKind::kDense;
  EXPECT_NE(config_fields(changed), config_fields(config));
  EXPECT_EQ(layer_letters(config).size(), config.layers.size());
}

}  // namespace
}  // namespace k3
