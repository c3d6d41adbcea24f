#include "passes/solution_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

StoredSolution small_solution() {
  StoredSolution solution;
  solution.source_xxh3 = 0x0123456789abcdef;
  solution.loss.fit = 0.25;
  solution.loss.select = NAN;
  solution.loss.step_select[5] = 0.5;
  solution.extent = {std::byte{1}, std::byte{2}, std::byte{3}};
  return solution;
}

TEST(SolutionStore, FindsWhatWasPutUnderItsKeyAlone) {
  const TempFolder folder;
  const SolutionStore store(folder.path("out.work"));
  EXPECT_FALSE(store.find(7, 3).has_value());
  store.put(7, small_solution());
  const auto found = store.find(7, 3);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->source_xxh3, 0x0123456789abcdef);
  EXPECT_EQ(found->loss.fit, 0.25);
  EXPECT_TRUE(std::isnan(found->loss.select));
  EXPECT_EQ(found->loss.step_select[5], 0.5);
  EXPECT_EQ(found->extent, small_solution().extent);
  EXPECT_FALSE(store.find(8, 3).has_value());
  EXPECT_FALSE(store.find(7, 4).has_value());
}

TEST(SolutionStore, ADamagedRecordIsAsGoodAsNone) {
  const TempFolder folder;
  const SolutionStore store(folder.path("out.work"));
  store.put(7, small_solution());
  const std::string path = folder.path("out.work/0000000000000007.k3solved");
  const std::vector<std::byte> whole = file_bytes(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::vector<std::byte> damaged = whole;
    damaged[at] ^= std::byte{0x10};
    folder.write("out.work/0000000000000007.k3solved", damaged);
    EXPECT_FALSE(store.find(7, 3).has_value()) << "byte " << at;
  }
  folder.write("out.work/0000000000000007.k3solved", std::span(whole).first(whole.size() - 1));
  EXPECT_FALSE(store.find(7, 3).has_value());
  store.put(7, small_solution());
  EXPECT_TRUE(store.find(7, 3).has_value());
}

TEST(SolutionStore, RemovesItsOwnAndNothingElse) {
  const TempFolder folder;
  const SolutionStore store(folder.path("out.work"));
  store.remove();  // nothing there
  store.put(7, small_solution());
  folder.write("out.work/notes.txt", "mine");
  store.remove();
  EXPECT_FALSE(store.find(7, 3).has_value());
  EXPECT_TRUE(std::filesystem::exists(folder.path("out.work/notes.txt")));
  std::filesystem::remove(folder.path("out.work/notes.txt"));
  store.remove();
  EXPECT_FALSE(std::filesystem::exists(folder.path("out.work")));
}

TEST(SolutionStore, AFolderThatCannotBeMadeIsNamed) {
  const TempFolder folder;
  folder.write("file", "no folder");
  const SolutionStore store(folder.path("file/out.work"));
  EXPECT_NE(thrown_message([&] { store.put(7, small_solution()); }).find("file/out.work"),
            std::string::npos);
}

}  // namespace
}  // namespace k3
