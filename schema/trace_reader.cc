#include "schema/trace_reader.h"

#include <algorithm>
#include <array>

#include "schema/error.h"
#include "schema/zstd.h"

namespace k3 {

TraceReader::TraceReader(const std::string& path) : file_(path) {
  std::array<std::byte, kTraceHeaderBytes> fixed{};
  const auto present = static_cast<size_t>(std::min(file_.size_bytes(), kTraceHeaderBytes));
  file_.read_at(0, std::span(fixed).first(present));
  std::vector<std::byte> whole(
      static_cast<size_t>(trace_header_bytes(std::span(fixed).first(present), path)));
  read_hashed(file_, 0, whole, hash_);
  header_ = decode_trace_header(whole, path);
  at_bytes_ = std::ssize(whole);
}

bool TraceReader::next_stored(TraceBlockHeader& place, std::vector<std::byte>& stored) {
  if (ended_ || is_cut_) return false;
  const int64_t left = file_.size_bytes() - at_bytes_;
  if (left < kTraceBlockHeaderBytes) return end_as_cut();
  std::array<std::byte, kTraceBlockHeaderBytes> bytes{};
  file_.read_at(at_bytes_, bytes);
  if (!decode_block_header(bytes, place)) {
    throw Error(path(), ": block ", blocks_, " at byte ", at_bytes_, ": its header is damaged");
  }
  if (place.tokens == 0) {
    if (left > kTraceBlockHeaderBytes) {
      throw Error(path(), ": goes on behind its end at byte ", at_bytes_);
    }
    hash_.update(bytes);
    ended_ = true;
    return false;
  }
  // So that nobody makes room for tokens that are nowhere.
  if (place.first_token < 0 || place.first_token > tokens_) {
    throw Error(path(), ": block ", blocks_, ": begins with token ", place.first_token,
                ", the blocks before it reach ", tokens_);
  }
  if (place.raw_bytes > kLargestTraceBlockBytes) {
    throw Error(path(), ": block ", blocks_, ": has ", place.raw_bytes, " bytes, at most ",
                kLargestTraceBlockBytes, " are read");
  }
  if (place.stored_bytes > left - kTraceBlockHeaderBytes) return end_as_cut();
  stored.resize(static_cast<size_t>(place.stored_bytes));
  file_.read_at(at_bytes_ + kTraceBlockHeaderBytes, stored);
  const bool is_last = place.stored_bytes == left - kTraceBlockHeaderBytes;
  if (xxh3(stored) != place.xxh3) {
    // A machine that went down may leave a last block whose bytes never reached the disk.
    if (is_last) return end_as_cut();
    throw Error(path(), ": block ", blocks_, ": is damaged: its hash does not match its bytes");
  }
  hash_.update(bytes);
  hash_.update(stored);
  at_bytes_ += kTraceBlockHeaderBytes + place.stored_bytes;
  tokens_ = std::max(tokens_, place.first_token + place.tokens);
  ++blocks_;
  return true;
}

bool TraceReader::next(TraceBlock& block) {
  TraceBlockHeader place;
  std::vector<std::byte> stored;
  if (!next_stored(place, stored)) return false;
  const std::string subject = path() + ": block " + std::to_string(blocks_ - 1);
  block = decode_trace_block(header_, place, decompress_zstd(stored, place.raw_bytes, subject),
                             subject);
  return true;
}

}  // namespace k3
