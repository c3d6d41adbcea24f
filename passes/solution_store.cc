// A record: magic, key, source hash, the loss as doubles, the extent, and the XXH3 of all before.

#include "passes/solution_store.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "schema/error.h"
#include "schema/file.h"
#include "schema/hash.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".k3solved";
constexpr uint64_t kMagic = 0x31444556'4c4f534bu;  // "KSOLVED1"
constexpr size_t kLossBytes = sizeof(MatrixLoss);
constexpr size_t kHeadBytes = 3 * sizeof(uint64_t) + kLossBytes;
constexpr size_t kHashBytes = sizeof(uint64_t);
static_assert(sizeof(MatrixLoss) == 23 * sizeof(double), "nothing but doubles");

}  // namespace

std::string SolutionStore::path(uint64_t key) const {
  return (fs::path(folder_) / (hex_digits(key) + std::string(kEnding))).string();
}

std::optional<StoredSolution> SolutionStore::find(uint64_t key, int64_t extent_bytes) const {
  const std::string from = path(key);
  if (!fs::exists(from)) return std::nullopt;
  const File file(from);
  const auto record_bytes = static_cast<int64_t>(kHeadBytes + kHashBytes) + extent_bytes;
  if (file.size_bytes() != record_bytes) return std::nullopt;
  std::vector<std::byte> bytes(static_cast<size_t>(record_bytes));
  file.read_at(0, bytes);
  const auto hashed = std::span(bytes).first(bytes.size() - kHashBytes);
  if (load_little_endian<uint64_t>(bytes.data()) != kMagic ||
      load_little_endian<uint64_t>(bytes.data() + 8) != key ||
      load_little_endian<uint64_t>(bytes.data() + hashed.size()) != xxh3(hashed)) {
    return std::nullopt;
  }
  StoredSolution solution;
  solution.source_xxh3 = load_little_endian<uint64_t>(bytes.data() + 16);
  std::memcpy(&solution.loss, bytes.data() + 24, kLossBytes);
  solution.extent.assign(hashed.begin() + kHeadBytes, hashed.end());
  return solution;
}

void SolutionStore::put(uint64_t key, const StoredSolution& solution) const {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) throw Error(folder_, ": cannot be created: ", failed.message());
  std::vector<std::byte> bytes(kHeadBytes + solution.extent.size() + kHashBytes);
  store_little_endian(kMagic, bytes.data());
  store_little_endian(key, bytes.data() + 8);
  store_little_endian(solution.source_xxh3, bytes.data() + 16);
  std::memcpy(bytes.data() + 24, &solution.loss, kLossBytes);
  std::copy(solution.extent.begin(), solution.extent.end(), bytes.begin() + kHeadBytes);
  const size_t hashed = bytes.size() - kHashBytes;
  store_little_endian(xxh3(std::span(bytes).first(hashed)), bytes.data() + hashed);

  const std::string unfinished = path(key) + ".unfinished";
  std::ofstream out(unfinished, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (out) fs::rename(unfinished, path(key), failed);
  if (!out || failed) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw Error(unfinished, ": cannot be written: ",
                failed ? failed.message() : std::string("is the disk full?"));
  }
}

void SolutionStore::remove() const {
  std::error_code ignored;
  std::vector<fs::path> ours;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kEnding) || name.ends_with(std::string(kEnding) + ".unfinished")) {
      ours.push_back(entry.path());
    }
  }
  for (const fs::path& file : ours) fs::remove(file, ignored);
  fs::remove(folder_, ignored);  // only when it is empty
}

}  // namespace k3
