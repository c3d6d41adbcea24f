// A pack that fits in memory is checked to the last byte when it is opened; a larger one when its
// parts are read.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "runtime/loaded_model.h"
#include "schema/error.h"
#include "tests/runtime/packs.h"
#include "tests/temp_folder.h"

namespace k3 {
namespace {

class DamagedPack : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ifstream file(sound_path_, std::ios::binary);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << file.rdbuf();
    bytes_ = static_cast<int64_t>(std::ifstream(path_, std::ios::ate).tellg());
    file_.open(path_, std::ios::binary | std::ios::in | std::ios::out);
  }

  void flip(int64_t offset, int bit) {
    file_.seekg(offset);
    const int byte = file_.get();
    file_.seekp(offset);
    file_.put(static_cast<char>(byte ^ (1 << bit)));
    file_.flush();
  }

  // What opening the pack says, empty when it opens.
  std::string fault(const LoadOptions& options) const {
    try {
      LoadedModel model(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::string sound_path_ = test::pack_path(GetParam());
  TempFolder folder_;
  std::string path_ = folder_.path("damaged.k3pack");
  std::fstream file_;
  int64_t bytes_ = 0;
};

TEST_P(DamagedPack, OpeningNoticesEveryFlipAnywhere) {
  ASSERT_EQ(fault({.pack_path = path_}), "");
  std::vector<int64_t> offsets;
  for (int64_t offset = 0; offset < kFrameBytes; offset += 3) offsets.push_back(offset);
  for (int64_t offset = kFrameBytes; offset < kExtentAlignment; offset += 512) {
    offsets.push_back(offset);  // the padding behind the frame
  }
  const PackReader pack(sound_path_);
  for (const PackTensor& tensor : pack.index().content.tensors) {
    offsets.push_back(tensor.extent.offset_bytes + tensor.extent.length_bytes / 2);
    // One past the end is the padding before the next extent, where there is any.
    if (tensor.extent.end_bytes() % kExtentAlignment != 0)
      offsets.push_back(tensor.extent.end_bytes());
  }
  for (const PackReport& report : pack.index().provenance.reports) {
    offsets.push_back(report.extent.offset_bytes);
  }
  for (const PackSideFile& side : pack.index().content.side_files) {
    offsets.push_back(side.extent.offset_bytes + 5);
  }
  for (int64_t i = 0; i < 80; ++i) offsets.push_back(bytes_ / 80 * i + 17);
  ASSERT_GE(offsets.size(), 250u);
  // Every opening reads the whole pack: of a large one a sample is damaged.
  const auto step = static_cast<size_t>(1 + bytes_ / 30'000'000 * 4);
  for (size_t i = 0; i < offsets.size(); i += step) {
    const int bit = static_cast<int>(i % 8);
    flip(offsets[i], bit);
    const std::string what = fault({.pack_path = path_});
    EXPECT_NE(what, "") << "offset " << offsets[i];
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    flip(offsets[i], bit);
  }
  EXPECT_EQ(fault({.pack_path = path_}), "");
}

TEST_P(DamagedPack, ADamagedExpertOfAPackThatDoesNotFitIsNoticedWhenItIsFetched) {
  const PackReader pack(sound_path_);
  const PackBank& bank = pack.index().content.banks[0];
  const Extent& extent = bank.experts[5].extent;
  flip(extent.offset_bytes + 100, 3);
  const LoadOptions options{.pack_path = path_,
                            .expert_cache_gb = 20 * static_cast<double>(extent.length_bytes) / 1e9};
  LoadedModel model(options);
  const PackBank& opened = model.pack().index().content.banks[0];
  const std::vector<int32_t> sound = {0, 1, 2, 3};
  EXPECT_EQ(model.experts().fetch(opened, sound).size(), 4u);
  const std::vector<int32_t> damaged = {4, 5};
  try {
    model.experts().fetch(opened, damaged);
    FAIL() << "the damage went unnoticed";
  } catch (const Error& error) {
    const std::string name = "layer " + std::to_string(bank.layer) + " expert 5";
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
  }
}

K3_FOR_EVERY_PACK(DamagedPack);

}  // namespace
}  // namespace k3
