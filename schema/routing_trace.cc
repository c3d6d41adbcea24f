#include "schema/routing_trace.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "schema/error.h"
#include "schema/hash.h"
#include "schema/little_endian.h"

namespace k3 {
namespace {

constexpr std::array<uint8_t, 8> kMagic = {0x89, 'K', '3', 'T', 'R', 'A', 'C', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kBlockMarker = 0x4254334b;  // "K3TB"
constexpr int64_t kMostExperts = 65535;
constexpr int64_t kMostLayers = 10000;  // as in a pack
constexpr int64_t kHashBytes = 8;

// Flags of the header.
constexpr uint32_t kWeights = 1;
constexpr uint32_t kNorms = 2;
constexpr uint32_t kMasked = 4;
constexpr uint32_t kAllFlags = 7;

// Appends values byte by byte.
class Bytes {
 public:
  template <std::unsigned_integral T>
  void add(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    store_little_endian(value, bytes_.data() + at);
  }
  void add(std::string_view text) {
    const auto raw = std::as_bytes(std::span(text));
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  // Hosts are little-endian (static_assert below), so columns are copied whole.
  template <class T>
  void add_column(const std::vector<T>& values) {
    const auto raw = std::as_bytes(std::span(values));
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }
  const std::vector<std::byte>& view() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

static_assert(std::endian::native == std::endian::little);

// Takes values off the front; every length is checked against what is left.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& subject)
      : bytes_(bytes), subject_(subject) {}

  template <std::unsigned_integral T>
  T take() {
    return load_little_endian<T>(take_bytes(sizeof(T)).data());
  }
  std::string take_text(size_t length) {
    const auto raw = take_bytes(length);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  template <class T>
  std::vector<T> take_column(size_t count) {
    const auto raw = take_bytes(count * sizeof(T));
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }
  void expect_end() const {
    if (!bytes_.empty()) throw Error(subject_, ": has ", bytes_.size(), " bytes too many");
  }

 private:
  std::span<const std::byte> take_bytes(size_t count) {
    if (count > bytes_.size()) {
      throw Error(subject_, ": ends early: ", count, " more bytes are expected, ", bytes_.size(),
                  " are there");
    }
    const auto front = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return front;
  }

  std::span<const std::byte> bytes_;
  const std::string& subject_;
};

void check_floats(const std::vector<float>& values, const char* what, const std::string& subject) {
  const auto bad = std::find_if_not(values.begin(), values.end(),
                                    [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return;
  throw Error(subject, ": ", what, " ", bad - values.begin(), " is ", *bad,
              ", expected a finite number");
}

void check_ids(const std::vector<uint16_t>& ids, int64_t experts, const std::string& subject) {
  const auto bad = std::find_if(ids.begin(), ids.end(),
                                [&](uint16_t id) { return id >= experts && id != kNoExpert; });
  if (bad == ids.end()) return;
  throw Error(subject, ": expert ", *bad, " was chosen, the header says there are ", experts);
}

}  // namespace

std::vector<std::byte> encode_trace_header(const TraceHeader& header) {
  if (header.experts > kMostExperts) {
    throw Error("a routing trace can name ", kMostExperts, " experts, the model has ",
                header.experts);
  }
  if (header.expert_bytes > kMostExpertBytes) {
    throw Error("a routing trace can be of experts of ", kMostExpertBytes,
                " bytes, the model's have ", header.expert_bytes);
  }
  K3_CHECK(header.experts_per_token >= 1 && header.experts_per_token <= header.experts);
  Bytes bytes;
  for (const uint8_t byte : kMagic) bytes.add(byte);
  bytes.add(kVersion);
  bytes.add(static_cast<uint32_t>(header.layers.size()));
  bytes.add(header.router_xxh3);
  bytes.add(header.payload_xxh3);
  bytes.add(static_cast<uint64_t>(header.expert_bytes));
  bytes.add(static_cast<uint32_t>(header.experts));
  bytes.add(static_cast<uint32_t>(header.experts_per_token));
  bytes.add(static_cast<uint32_t>(header.next_experts));
  bytes.add((header.has_weights ? kWeights : 0) | (header.has_norms ? kNorms : 0) |
            (header.masked ? kMasked : 0));
  bytes.add(uint64_t{0});
  K3_CHECK(std::ssize(bytes.view()) == kTraceHeaderBytes);
  for (const uint32_t layer : header.layers) bytes.add(layer);
  bytes.add(xxh3(bytes.view()));
  return bytes.take();
}

int64_t trace_header_bytes(std::span<const std::byte> fixed, const std::string& path) {
  K3_CHECK(std::ssize(fixed) <= kTraceHeaderBytes);
  if (std::ssize(fixed) < kTraceHeaderBytes ||
      std::memcmp(fixed.data(), kMagic.data(), kMagic.size()) != 0) {
    throw Error(path, ": is not a routing trace (.k3trace)");
  }
  const auto version = load_little_endian<uint32_t>(&fixed[8]);
  if (version != kVersion) {
    throw Error(path, ": is a routing trace of version ", version, ", this program reads ",
                kVersion);
  }
  const int64_t layers = load_little_endian<uint32_t>(&fixed[12]);
  if (layers < 1 || layers > kMostLayers) {
    throw Error(path, ": header lists ", layers, " layers, expected 1 to ", kMostLayers);
  }
  return kTraceHeaderBytes + 4 * layers + kHashBytes;
}

TraceHeader decode_trace_header(std::span<const std::byte> bytes, const std::string& path) {
  const auto hashed = bytes.first(bytes.size() - kHashBytes);
  if (xxh3(hashed) != load_little_endian<uint64_t>(&bytes[hashed.size()])) {
    throw Error(path, ": header is damaged: its hash does not match its bytes");
  }
  Cursor cursor(hashed, path);
  cursor.take<uint64_t>();  // magic
  cursor.take<uint32_t>();  // version
  TraceHeader header;
  header.layers.resize(cursor.take<uint32_t>());
  header.router_xxh3 = cursor.take<uint64_t>();
  header.payload_xxh3 = cursor.take<uint64_t>();
  const auto expert_bytes = cursor.take<uint64_t>();
  header.experts = cursor.take<uint32_t>();
  header.experts_per_token = cursor.take<uint32_t>();
  header.next_experts = cursor.take<uint32_t>();
  const auto flags = cursor.take<uint32_t>();
  cursor.take<uint64_t>();  // reserved
  for (uint32_t& layer : header.layers) layer = cursor.take<uint32_t>();

  if (header.experts < 1 || header.experts > kMostExperts || header.experts_per_token < 1 ||
      header.experts_per_token > header.experts || header.next_experts > header.experts) {
    throw Error(path, ": header says ", header.experts_per_token, " of ", header.experts,
                " experts are chosen and ", header.next_experts, " more recorded");
  }
  if (expert_bytes > static_cast<uint64_t>(kMostExpertBytes)) {
    throw Error(path, ": header says an expert has ", expert_bytes, " bytes");
  }
  if ((flags & ~kAllFlags) != 0) {
    throw Error(path, ": header has flags ", flags, ", this program knows ", kAllFlags);
  }
  const bool ascend = std::adjacent_find(header.layers.begin(), header.layers.end(),
                                         std::greater_equal<>()) == header.layers.end();
  if (!ascend || header.layers.back() >= kMostLayers) {
    throw Error(path, ": header's layers are not ascending numbers below ", kMostLayers);
  }
  header.expert_bytes = static_cast<int64_t>(expert_bytes);
  header.has_weights = (flags & kWeights) != 0;
  header.has_norms = (flags & kNorms) != 0;
  header.masked = (flags & kMasked) != 0;
  return header;
}

void encode_block_header(const TraceBlockHeader& header,
                         std::span<std::byte, kTraceBlockHeaderBytes> dst) {
  Bytes bytes;
  bytes.add(kBlockMarker);
  bytes.add(static_cast<uint32_t>(header.tokens));
  bytes.add(static_cast<uint64_t>(header.first_token));
  bytes.add(static_cast<uint16_t>(header.first_layer));
  bytes.add(static_cast<uint16_t>(header.layers));
  bytes.add(static_cast<uint32_t>(header.raw_bytes));
  bytes.add(static_cast<uint32_t>(header.stored_bytes));
  bytes.add(uint32_t{0});
  bytes.add(header.xxh3);
  bytes.add(xxh3(bytes.view()));
  std::copy(bytes.view().begin(), bytes.view().end(), dst.begin());
}

bool decode_block_header(std::span<const std::byte, kTraceBlockHeaderBytes> src,
                         TraceBlockHeader& header) {
  constexpr size_t kHashed = kTraceBlockHeaderBytes - kHashBytes;
  if (load_little_endian<uint32_t>(src.data()) != kBlockMarker) return false;
  if (xxh3(src.first(kHashed)) != load_little_endian<uint64_t>(&src[kHashed])) return false;
  header.tokens = load_little_endian<uint32_t>(&src[4]);
  header.first_token = static_cast<int64_t>(load_little_endian<uint64_t>(&src[8]));
  header.first_layer = load_little_endian<uint16_t>(&src[16]);
  header.layers = load_little_endian<uint16_t>(&src[18]);
  header.raw_bytes = load_little_endian<uint32_t>(&src[20]);
  header.stored_bytes = load_little_endian<uint32_t>(&src[24]);
  header.xxh3 = load_little_endian<uint64_t>(&src[32]);
  return true;
}

std::vector<std::byte> encode_trace_block(const TraceHeader& header, const TraceBlock& block) {
  const size_t rows = static_cast<size_t>(block.layers) * block.tokens.size();
  const size_t choices = rows * static_cast<size_t>(header.experts_per_token);
  const size_t nexts = rows * static_cast<size_t>(header.next_experts);
  K3_CHECK(block.ids.size() == choices && block.next_ids.size() == nexts);
  K3_CHECK(block.scores.size() == (header.has_weights ? choices : 0));
  K3_CHECK(block.weights.size() == block.scores.size());
  K3_CHECK(block.norms.size() == (header.has_norms ? choices : 0));
  K3_CHECK(block.next_scores.size() == nexts);
  Bytes bytes;
  bytes.add(static_cast<uint32_t>(block.documents.size()));
  for (const TraceDocument& document : block.documents) {
    bytes.add(document.xxh3);
    bytes.add(static_cast<uint8_t>(document.domain.size()));
    bytes.add(std::string_view(document.domain));
  }
  for (const TraceToken& token : block.tokens) bytes.add(token.document);
  for (const TraceToken& token : block.tokens) bytes.add(token.position);
  for (const TraceToken& token : block.tokens) bytes.add(static_cast<uint8_t>(token.phase));
  bytes.add_column(block.ids);
  bytes.add_column(block.scores);
  bytes.add_column(block.weights);
  bytes.add_column(block.norms);
  bytes.add_column(block.next_ids);
  bytes.add_column(block.next_scores);
  return bytes.take();
}

TraceBlock decode_trace_block(const TraceHeader& header, const TraceBlockHeader& place,
                              std::span<const std::byte> raw, const std::string& subject) {
  const auto layers = static_cast<int64_t>(header.layers.size());
  if (place.layers < 1 || place.first_layer + place.layers > layers) {
    throw Error(subject, ": covers layers ", place.first_layer, " + ", place.layers, " of ",
                layers);
  }
  TraceBlock block;
  block.first_token = place.first_token;
  block.first_layer = place.first_layer;
  block.layers = place.layers;

  Cursor cursor(raw, subject);
  const auto documents = cursor.take<uint32_t>();
  for (uint32_t i = 0; i < documents; ++i) {
    TraceDocument& document = block.documents.emplace_back();
    document.xxh3 = cursor.take<uint64_t>();
    document.domain = cursor.take_text(cursor.take<uint8_t>());
  }
  const auto tokens = static_cast<size_t>(place.tokens);
  const auto document_of = cursor.take_column<uint32_t>(tokens);
  const auto position_of = cursor.take_column<uint32_t>(tokens);
  const auto phase_of = cursor.take_column<uint8_t>(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    if (document_of[i] >= documents) {
      throw Error(subject, ": token ", i, " is of document ", document_of[i], ", the block has ",
                  documents);
    }
    if (phase_of[i] > static_cast<uint8_t>(TracePhase::kDecode)) {
      throw Error(subject, ": token ", i, " is of phase ", static_cast<int>(phase_of[i]),
                  ", this program knows 0 and 1");
    }
    block.tokens.push_back({document_of[i], position_of[i], static_cast<TracePhase>(phase_of[i])});
  }
  // The columns so far fit the block, so there are fewer than 2^28 tokens; by 2^14 layers and 2^16
  // choices the products stay inside size_t.
  const size_t rows = tokens * static_cast<size_t>(place.layers);
  const size_t choices = rows * static_cast<size_t>(header.experts_per_token);
  const size_t nexts = rows * static_cast<size_t>(header.next_experts);
  block.ids = cursor.take_column<uint16_t>(choices);
  block.scores = cursor.take_column<float>(header.has_weights ? choices : 0);
  block.weights = cursor.take_column<float>(header.has_weights ? choices : 0);
  block.norms = cursor.take_column<float>(header.has_norms ? choices : 0);
  block.next_ids = cursor.take_column<uint16_t>(nexts);
  block.next_scores = cursor.take_column<float>(nexts);
  cursor.expect_end();
  check_ids(block.ids, header.experts, subject);
  check_ids(block.next_ids, header.experts, subject);
  check_floats(block.scores, "score", subject);
  check_floats(block.weights, "weight", subject);
  check_floats(block.norms, "norm", subject);
  check_floats(block.next_scores, "next score", subject);
  return block;
}

}  // namespace k3
