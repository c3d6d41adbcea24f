#include "runtime/utf8_sequence.h"

#include "schema/error.h"

namespace k3 {
namespace {

// What may follow a lead byte: how many bytes, and the range of the first of them. Later ones are
// always 80..BF.
struct Lead {
  int continuations = 0;
  uint8_t first_low = 0x80;
  uint8_t first_high = 0xBF;
};

std::optional<Lead> parse_lead(uint8_t byte) {
  if (byte < 0x80) return Lead{.continuations = 0};
  if (byte >= 0xC2 && byte <= 0xDF) return Lead{.continuations = 1};
  if (byte == 0xE0) return Lead{.continuations = 2, .first_low = 0xA0};
  if (byte == 0xED) return Lead{.continuations = 2, .first_high = 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return Lead{.continuations = 2};
  if (byte == 0xF0) return Lead{.continuations = 3, .first_low = 0x90};
  if (byte >= 0xF1 && byte <= 0xF3) return Lead{.continuations = 3};
  if (byte == 0xF4) return Lead{.continuations = 3, .first_high = 0x8F};
  return std::nullopt;
}

}  // namespace

Utf8Sequence first_utf8_sequence(std::string_view text) {
  K3_CHECK(!text.empty());
  const auto first = static_cast<uint8_t>(text[0]);
  const std::optional<Lead> lead = parse_lead(first);
  if (!lead) return {Utf8Sequence::Kind::kFault, 1, 0};

  // A lead byte of n continuations carries 7 bits for n = 0, else 6 - n.
  char32_t character = lead->continuations == 0
                           ? first
                           : static_cast<char32_t>(first & (0x3F >> lead->continuations));
  for (int i = 1; i <= lead->continuations; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {Utf8Sequence::Kind::kCut, i, 0};
    const auto byte = static_cast<uint8_t>(text[static_cast<size_t>(i)]);
    const uint8_t low = i == 1 ? lead->first_low : 0x80;
    const uint8_t high = i == 1 ? lead->first_high : 0xBF;
    if (byte < low || byte > high) return {Utf8Sequence::Kind::kFault, i, 0};
    character = character << 6 | (byte & 0x3Fu);
  }
  return {Utf8Sequence::Kind::kCharacter, lead->continuations + 1, character};
}

std::optional<int64_t> find_utf8_fault(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const Utf8Sequence sequence = first_utf8_sequence(text.substr(offset));
    if (sequence.kind != Utf8Sequence::Kind::kCharacter) return static_cast<int64_t>(offset);
    offset += static_cast<size_t>(sequence.bytes);
  }
  return std::nullopt;
}

}  // namespace k3
