#include "compiler/pack_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "compiler/encode_journal.h"
#include "schema/pack_reader.h"
#include "tests/temp_folder.h"
#include "tests/thrown_message.h"
#include "tests/tiny_pack.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;

// The tiny pack's bytes through a PackWriter, up to but without finish().
struct Writing {
  TinyPack tiny;
  std::vector<std::byte> index =
      encode_index(encode_content(tiny.index.content), tiny.index.provenance, {}, {});
  int64_t index_offset = align_up(static_cast<int64_t>(tiny.data.size()), kExtentAlignment);
  PackWriter writer;

  explicit Writing(const std::string& path, Resume resume = Resume::kNo) : writer(path, resume) {
    writer.reserve(index_offset + static_cast<int64_t>(index.size()));
    writer.write_at(kExtentAlignment,
                    std::span(tiny.data).subspan(static_cast<size_t>(kExtentAlignment)));
  }
  void finish() { writer.finish(index_offset, index); }
};

int64_t files_in(const TempFolder& folder) {
  return std::distance(fs::directory_iterator(folder.path("")), fs::directory_iterator());
}

TEST(PackWriter, LeavesExactlyThePack) {
  const TempFolder folder;
  Writing writing(folder.path("out.k3pack"));
  EXPECT_FALSE(fs::exists(folder.path("out.k3pack")));
  writing.finish();
  EXPECT_EQ(file_bytes(folder.path("out.k3pack")), writing.tiny.image());
  EXPECT_TRUE(PackReader(folder.path("out.k3pack")).verify().empty());
  EXPECT_EQ(files_in(folder), 1);
}

TEST(PackWriter, AnUnfinishedPackLeavesNothing) {
  const TempFolder folder;
  { const Writing writing(folder.path("out.k3pack")); }
  EXPECT_EQ(files_in(folder), 0);
}

TEST(PackWriter, AnEarlierPackStaysUntilTheNewOneIsWhole) {
  const TempFolder folder;
  const std::string path = folder.write("out.k3pack", TinyPack().image());
  const auto before = file_bytes(path);
  { const Writing writing(path); }
  EXPECT_EQ(file_bytes(path), before);
  Writing(path).finish();
  EXPECT_EQ(files_in(folder), 1);
}

TEST(PackWriter, WhatIsNoPackIsNeverReplaced) {
  const TempFolder folder;
  const std::string text = folder.write("model.safetensors", std::string(1000, 'x'));
  EXPECT_EQ(thrown_message([&] { Writing writing(text); }),
            text + ": exists and is not a pack, it stays as it is");
  EXPECT_EQ(file_bytes(text).size(), 1000u);
  fs::create_directory(folder.path("folder"));
  EXPECT_EQ(thrown_message([&] { Writing writing(folder.path("folder")); }),
            folder.path("folder") + ": is a folder, expected a file name");
  fs::create_symlink(text, folder.path("link"));
  EXPECT_THROW(Writing{folder.path("link")}, Error);
}

TEST(PackWriter, AKilledProgramsNeighbourIsReplacedARunningOnesIsNot) {
  const TempFolder folder;
  const std::string path = folder.path("out.k3pack");
  folder.write("out.k3pack.unfinished", std::string("left behind"));
  Writing(path).finish();
  EXPECT_TRUE(PackReader(path).verify().empty());

  const Writing running(path);
  EXPECT_EQ(thrown_message([&] { Writing other(path); }),
            path + ".unfinished: another program is writing it");
}

// A journal beside `path`.unfinished that claims one item.
void claim_one(const std::string& path) {
  EncodeJournal(path + ".unfinished.journal", {1, 2}, 3, false).add(0, {});
}

TEST(PackWriter, WorkThatCanBeContinuedIsNotWrittenOver) {
  const TempFolder folder;
  const std::string path = folder.path("out.k3pack");
  folder.write("out.k3pack.unfinished", std::string("left behind"));
  claim_one(path);
  EXPECT_NE(thrown_message([&] { Writing writing(path); }).find("go on with it by --resume"),
            std::string::npos);
  EXPECT_EQ(files_in(folder), 2);
  Writing writing(path, Resume::kYes);
  EXPECT_TRUE(writing.writer.continues());
  writing.finish();
  EXPECT_TRUE(PackReader(path).verify().empty());
  EXPECT_EQ(files_in(folder), 1);
}

TEST(PackWriter, UnderResumeWorkStaysAndNothingElseDoes) {
  const TempFolder folder;
  const std::string path = folder.path("out.k3pack");
  { const Writing writing(path, Resume::kYes); }
  EXPECT_EQ(files_in(folder), 0);
  {
    const Writing writing(path, Resume::kYes);
    EXPECT_FALSE(writing.writer.continues());
    claim_one(path);
  }
  EXPECT_EQ(files_in(folder), 2);
}

TEST(PackWriter, UnderResumeASignalLeavesTheWorkAndSaysHowToGoOn) {
  const TempFolder folder;
  EXPECT_EXIT(
      {
        const Writing writing(folder.path("out.k3pack"), Resume::kYes);
        ::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "--resume goes on with .*out.k3pack.unfinished");
  EXPECT_EQ(files_in(folder), 1);
}

TEST(PackWriter, AFolderThatIsMissingIsNamed) {
  const TempFolder folder;
  EXPECT_EQ(
      thrown_message([&] { Writing writing(folder.path("none/out.k3pack")); }),
      folder.path("none/out.k3pack.unfinished") + ": cannot create: No such file or directory");
}

TEST(PackWriter, ASignalRemovesTheNeighbourAndEndsTheProcess) {
  const TempFolder folder;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        {
          const Writing writing(folder.path("out.k3pack"));
          if (files_in(folder) == 1) ::raise(signal);
        },
        testing::KilledBySignal(signal), "");
    EXPECT_EQ(files_in(folder), 0);
  }
}

TEST(ExtentStream, HashesWhatItPlaces) {
  const TempFolder folder;
  Writing writing(folder.path("out.k3pack"));
  const Extent extent = writing.tiny.index.content.tensors[0].extent;
  const auto bytes = writing.tiny.bytes_of(extent);
  ExtentStream stream(writing.writer, extent);
  stream.write(bytes.first(5));
  stream.write(bytes.subspan(5));
  EXPECT_EQ(stream.finish(), extent.xxh3);
}

}  // namespace
}  // namespace k3
