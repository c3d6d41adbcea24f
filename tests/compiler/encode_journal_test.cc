#include "compiler/encode_journal.h"

#include <gtest/gtest.h>

#include "tests/temp_folder.h"
#include "tests/thrown_message.h"

namespace k3 {
namespace {

constexpr JournalKey kKey{11, 22};
constexpr EncodedItem kItem{0x1234, 0x5678, 0x9abc, 0.125, {118, 119, 120}};
constexpr size_t kItems = 5;
constexpr size_t kPieceBytes = 56;

// A journal of kKey with claims of items 3 and 1.
std::vector<std::byte> two_records(const TempFolder& folder) {
  const std::string path = folder.path("made");
  EncodeJournal journal(path, kKey, kItems, false);
  journal.add(3, kItem);
  journal.add(1, {});
  return file_bytes(path);
}

int64_t claims_in(const TempFolder& folder, const std::vector<std::byte>& bytes) {
  return EncodeJournal(folder.write("journal", bytes), kKey, kItems, true).claims();
}

TEST(EncodeJournal, GivesBackWhatWasAdded) {
  const TempFolder folder;
  const EncodeJournal journal(folder.write("journal", two_records(folder)), kKey, kItems, true);
  ASSERT_TRUE(journal.claim(3).has_value());
  EXPECT_EQ(journal.claim(3)->extent_xxh3, kItem.extent_xxh3);
  EXPECT_EQ(journal.claim(3)->source_xxh3, kItem.source_xxh3);
  EXPECT_EQ(journal.claim(3)->untuned_xxh3, kItem.untuned_xxh3);
  EXPECT_EQ(journal.claim(3)->row_bound, kItem.row_bound);
  EXPECT_EQ(journal.claim(3)->least_exponent, kItem.least_exponent);
  EXPECT_TRUE(journal.claim(1).has_value());
  EXPECT_FALSE(journal.claim(0).has_value());
  EXPECT_EQ(journal.claims(), 2);
}

TEST(EncodeJournal, GoesOnBehindTheLastWholeRecord) {
  const TempFolder folder;
  std::vector<std::byte> torn = two_records(folder);
  torn.resize(torn.size() - 1);
  const std::string path = folder.write("journal", torn);
  {
    EncodeJournal journal(path, kKey, kItems, true);
    EXPECT_EQ(journal.claims(), 1);
    journal.add(4, kItem);
  }
  EXPECT_EQ(EncodeJournal(path, kKey, kItems, true).claims(), 2);
}

TEST(EncodeJournal, CutAnywhereItClaimsWhatIsWhole) {
  const TempFolder folder;
  const std::vector<std::byte> whole = two_records(folder);
  ASSERT_EQ(whole.size(), 3 * kPieceBytes);
  for (size_t size = 0; size <= whole.size(); ++size) {
    const auto want = static_cast<int64_t>(size < kPieceBytes ? 0 : size / kPieceBytes - 1);
    EXPECT_EQ(claims_in(folder, {whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)}),
              want);
  }
}

TEST(EncodeJournal, ADamagedByteCostsItsRecordOrAll) {
  const TempFolder folder;
  const std::vector<std::byte> whole = two_records(folder);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::vector<std::byte> damaged = whole;
    damaged[at] ^= std::byte{1};
    EXPECT_EQ(claims_in(folder, damaged), at < kPieceBytes ? 0 : 1) << at;
  }
}

TEST(EncodeJournal, AnotherKeyIsRefusedAndTheFileStays) {
  const TempFolder folder;
  const std::vector<std::byte> whole = two_records(folder);
  const std::string path = folder.write("journal", whole);
  const auto message = [&](const JournalKey& key, size_t items) {
    return thrown_message([&] { EncodeJournal(path, key, items, true); });
  };
  EXPECT_NE(message({12, 22}, kItems).find(": was begun with other options, "), std::string::npos);
  EXPECT_NE(message({11, 23}, kItems).find(": a shard of the checkpoint has changed"),
            std::string::npos);
  EXPECT_NE(message(kKey, kItems + 1), "no error");
  EXPECT_EQ(file_bytes(path), whole);
}

TEST(EncodeJournal, ARecordOfAnotherKeyDoesNotPass) {
  const TempFolder folder;
  std::vector<std::byte> mixed = two_records(folder);
  const std::string path = folder.path("other");
  EncodeJournal(path, {11, 99}, kItems, false).add(2, kItem);
  const std::vector<std::byte> other = file_bytes(path);
  mixed.insert(mixed.end(), other.begin() + kPieceBytes, other.end());
  EXPECT_EQ(claims_in(folder, mixed), 2);
}

TEST(EncodeJournal, StartsEmptyUnlessItContinues) {
  const TempFolder folder;
  const std::string path = folder.write("journal", two_records(folder));
  EXPECT_TRUE(EncodeJournal::holds_records(path));
  EXPECT_EQ(EncodeJournal(path, kKey, kItems, false).claims(), 0);
  EXPECT_FALSE(EncodeJournal::holds_records(path));
  EXPECT_FALSE(EncodeJournal::holds_records(folder.path("none")));
}

}  // namespace
}  // namespace k3
