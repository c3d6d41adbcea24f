//   head    0  8  magic "K3CJRNL\n"
//           8  8  key: plan
//          16  8  key: shards
//          24  8  items of the plan
//          32 16  zeros
//          48  8  XXH3-64 of the 48 bytes above
//   record  0  8  item
//           8  8  XXH3-64 of the extent
//          16  8  XXH3-64 of the source
//          24  8  XXH3-64 of the extent without its tuning, of a trunk tensor
//          32  8  row bound, a double
//          40  3  least exponents, then five zeros
//          48  8  XXH3-64 of the 48 bytes above and the head's key
// All little-endian. The key in a record's checksum keeps a record of an earlier journal, which a
// file system may bring back after a power cut, from passing for one of this.
#include "compiler/encode_journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "schema/error.h"
#include "schema/file.h"
#include "schema/hash.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

constexpr size_t kPieceBytes = 56;  // of the head and of each record
constexpr size_t kHashedBytes = 48;
constexpr std::array<uint8_t, 8> kMagic = {'K', '3', 'C', 'J', 'R', 'N', 'L', '\n'};
constexpr int64_t kLargestJournal = int64_t{1} << 30;  // K3's has 5 MB

using Piece = std::array<std::byte, kPieceBytes>;

Piece encode_head(const JournalKey& key, size_t items) {
  Piece piece{};
  std::transform(kMagic.begin(), kMagic.end(), piece.begin(),
                 [](uint8_t value) { return std::byte{value}; });
  store_little_endian(key.plan, &piece[8]);
  store_little_endian(key.shards, &piece[16]);
  store_little_endian(uint64_t{items}, &piece[24]);
  store_little_endian(xxh3(std::span(piece).first(kHashedBytes)), &piece[kHashedBytes]);
  return piece;
}

// A head whose checksum holds, or nothing.
std::optional<Piece> read_head(std::span<const std::byte> bytes) {
  Piece head{};
  if (bytes.size() < head.size()) return std::nullopt;
  std::copy_n(bytes.begin(), head.size(), head.begin());
  const JournalKey key{load_little_endian<uint64_t>(&head[8]),
                       load_little_endian<uint64_t>(&head[16])};
  const auto items = static_cast<size_t>(load_little_endian<uint64_t>(&head[24]));
  if (head != encode_head(key, items)) return std::nullopt;
  return head;
}

uint64_t record_checksum(std::span<const std::byte> record, const JournalKey& key) {
  std::array<std::byte, kHashedBytes + 16> hashed{};
  std::copy_n(record.begin(), kHashedBytes, hashed.begin());
  store_little_endian(key.plan, &hashed[kHashedBytes]);
  store_little_endian(key.shards, &hashed[kHashedBytes + 8]);
  return xxh3(hashed);
}

std::vector<std::byte> read_if_there(const std::string& path) {
  std::error_code missing;
  if (!std::filesystem::is_regular_file(path, missing)) return {};
  return read_whole_file(path, kLargestJournal);
}

}  // namespace

JournalKey journal_key(const Model& model, const PassResults& results,
                       std::span<const std::byte> index) {
  Xxh3Stream plan;
  plan.update(index);
  for (const SideFile& file : model.side_files) plan.update(file.compressed);
  for (const PlannedReport& report : results.reports) plan.update(report.stored);

  Xxh3Stream shards;
  for (const auto& shard : model.shards) {
    const std::string name = shard->path().substr(shard->path().rfind('/') + 1);
    struct stat status {};
    if (::stat(shard->path().c_str(), &status) != 0) {
      throw Error(shard->path(), ": cannot be asked for its time: ", std::strerror(errno));
    }
    std::array<std::byte, 24> facts{};
    store_little_endian(static_cast<uint64_t>(shard->size_bytes()), &facts[0]);
    store_little_endian(static_cast<uint64_t>(status.st_mtim.tv_sec), &facts[8]);
    store_little_endian(static_cast<uint64_t>(status.st_mtim.tv_nsec), &facts[16]);
    shards.update(std::as_bytes(std::span(name)));
    shards.update(facts);
  }
  return {plan.digest(), shards.digest()};
}

EncodeJournal::EncodeJournal(const std::string& path, const JournalKey& key, size_t items,
                             bool continues)
    : path_(path), key_(key), claims_(items) {
  std::vector<std::byte> earlier;
  if (continues) earlier = read_if_there(path);
  const Piece head = encode_head(key, items);
  const auto found = read_head(earlier);
  if (found && *found != head) {
    const bool same_plan = std::equal(head.begin() + 8, head.begin() + 16, found->begin() + 8);
    throw Error(path, same_plan
                          ? ": a shard of the checkpoint has changed since; remove it to start over"
                          : ": was begun with other options, from another checkpoint or by another "
                            "k3c; remove it to start over");
  }
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor < 0) throw Error(path, ": cannot create: ", std::strerror(errno));
  file_ = std::make_unique<OutputFile>(descriptor, path);
  if (found) {
    read_claims(earlier);
    end_bytes_ = static_cast<int64_t>(earlier.size() / kPieceBytes * kPieceBytes);
  }
  // A torn last record goes; without a head all goes.
  if (::ftruncate(descriptor, end_bytes_) != 0) {
    throw Error(path, ": cannot end at ", end_bytes_, ": ", std::strerror(errno));
  }
  if (found) return;
  file_->write_at(0, head);
  end_bytes_ = static_cast<int64_t>(head.size());
}

void EncodeJournal::read_claims(std::span<const std::byte> bytes) {
  for (bytes = bytes.subspan(kPieceBytes); bytes.size() >= kPieceBytes;
       bytes = bytes.subspan(kPieceBytes)) {
    if (load_little_endian<uint64_t>(&bytes[kHashedBytes]) != record_checksum(bytes, key_)) {
      continue;
    }
    const auto item = load_little_endian<uint64_t>(&bytes[0]);
    if (item >= claims_.size()) continue;
    EncodedItem& claim = claims_[static_cast<size_t>(item)].emplace();
    claim.extent_xxh3 = load_little_endian<uint64_t>(&bytes[8]);
    claim.source_xxh3 = load_little_endian<uint64_t>(&bytes[16]);
    claim.untuned_xxh3 = load_little_endian<uint64_t>(&bytes[24]);
    claim.row_bound = std::bit_cast<double>(load_little_endian<uint64_t>(&bytes[32]));
    for (size_t i = 0; i < claim.least_exponent.size(); ++i) {
      claim.least_exponent[i] = std::to_integer<uint8_t>(bytes[40 + i]);
    }
  }
}

int64_t EncodeJournal::claims() const {
  return std::count_if(claims_.begin(), claims_.end(),
                       [](const auto& claim) { return claim.has_value(); });
}

void EncodeJournal::add(size_t item, const EncodedItem& encoded) {
  Piece record{};
  store_little_endian(uint64_t{item}, &record[0]);
  store_little_endian(encoded.extent_xxh3, &record[8]);
  store_little_endian(encoded.source_xxh3, &record[16]);
  store_little_endian(encoded.untuned_xxh3, &record[24]);
  store_little_endian(std::bit_cast<uint64_t>(encoded.row_bound), &record[32]);
  for (size_t i = 0; i < encoded.least_exponent.size(); ++i) {
    record[40 + i] = std::byte{encoded.least_exponent[i]};
  }
  store_little_endian(record_checksum(record, key_), &record[kHashedBytes]);
  const std::scoped_lock lock(writing_);
  file_->write_at(end_bytes_, record);
  end_bytes_ += static_cast<int64_t>(record.size());
}

bool EncodeJournal::holds_records(const std::string& path) {
  const std::vector<std::byte> bytes = read_if_there(path);
  return read_head(bytes) && bytes.size() >= 2 * kPieceBytes;
}

}  // namespace k3
