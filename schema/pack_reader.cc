#include "schema/pack_reader.h"

#include <array>

#include "schema/error.h"
#include "schema/hash.h"
#include "schema/pack_check.h"
#include "schema/pack_decode.h"
#include "schema/zstd.h"

namespace k3 {
namespace {

template <class Item>
const Item* find_named(const std::vector<Item>& items, std::string_view name) {
  for (const Item& item : items) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

}  // namespace

PackReader::PackReader(const std::string& path, Tail tail) : file_(path) {
  std::array<std::byte, kFrameBytes> frame_bytes{};
  const auto present = static_cast<size_t>(std::min(file_.size_bytes(), kFrameBytes));
  file_.read_at(0, std::span(frame_bytes).first(present));
  frame_ = decode_frame(std::span(frame_bytes).first(present), path, file_.size_bytes(), tail);

  index_bytes_.resize(static_cast<size_t>(frame_.index.length_bytes));
  read(frame_.index, "index", index_bytes_);
  DecodedIndex decoded = decode_index(index_bytes_, path);
  index_ = std::move(decoded.index);
  content_bytes_ = decoded.content;
  check_index(frame_, index_, path);
  payload_xxh3_ = xxh3(content_bytes_);
  for (const PackReceipt& receipt : index_.receipts) {
    if (receipt.payload_xxh3 != payload_xxh3_) {
      throw Error(path, ": receipt ", receipt.kind, ": was measured on another pack");
    }
  }

  tensors_by_name_.reserve(index_.content.tensors.size());
  for (const PackTensor& tensor : index_.content.tensors) {
    tensors_by_name_.emplace(tensor.name, &tensor);
  }
  bank_by_layer_.resize(config().layers.size());
  for (const PackBank& bank : index_.content.banks) {
    bank_by_layer_[static_cast<size_t>(bank.layer)] = &bank;
  }
}

const PackTensor* PackReader::find(std::string_view name) const {
  const auto found = tensors_by_name_.find(name);
  return found == tensors_by_name_.end() ? nullptr : found->second;
}

const PackBank* PackReader::bank(int64_t layer) const {
  if (layer < 0 || static_cast<size_t>(layer) >= bank_by_layer_.size()) return nullptr;
  return bank_by_layer_[static_cast<size_t>(layer)];
}

void PackReader::read(const Extent& extent, std::string_view name, std::span<std::byte> dst,
                      bool check_hash) const {
  K3_CHECK(static_cast<int64_t>(dst.size()) == extent.length_bytes);
  file_.read_at(extent.offset_bytes, dst);
  if (check_hash) expect_hash(extent, name, dst);
}

void PackReader::expect_hash(const Extent& extent, std::string_view name,
                             std::span<const std::byte> bytes) const {
  if (xxh3(bytes) == extent.xxh3) return;
  throw Error(path(), ": ", name, ": is damaged: its hash does not match its bytes");
}

std::vector<std::byte> PackReader::read_compressed(const Extent& extent, std::string_view name,
                                                   int64_t raw_bytes) const {
  std::vector<std::byte> stored(static_cast<size_t>(extent.length_bytes));
  read(extent, name, stored);
  return decompress_zstd(stored, raw_bytes, path() + ": " + std::string(name));
}

std::vector<std::byte> PackReader::side_file(std::string_view name) const {
  const PackSideFile* file = find_named(index_.content.side_files, name);
  if (file == nullptr) throw Error(path(), ": side file ", name, ": is not in this pack");
  return read_compressed(file->extent, "side file " + file->name, file->raw_bytes);
}

std::vector<std::byte> PackReader::report(std::string_view name) const {
  const PackReport* report = find_named(index_.provenance.reports, name);
  if (report == nullptr) throw Error(path(), ": report ", name, ": is not in this pack");
  if (!is_stored_raw(*report)) {
    return read_compressed(report->extent, "report " + report->name, report->raw_bytes);
  }
  std::vector<std::byte> bytes(static_cast<size_t>(report->extent.length_bytes));
  read(report->extent, "report " + report->name, bytes);
  return bytes;
}

}  // namespace k3
