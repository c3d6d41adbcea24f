#include "schema/json_scanner.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <simdjson.h>

#include "schema/printable.h"

namespace k3 {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr size_t kDeepest = 64;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

JsonScanner::JsonScanner(std::string path, std::string_view text)
    : path_(std::move(path)),
      begin_(text.data()),
      at_(text.data()),
      end_(text.data() + text.size()) {}

JsonScanner::JsonScanner(const File& file)
    : path_(file.path()), file_(&file), buffer_(static_cast<size_t>(kPieceBytes)) {
  begin_ = at_ = end_ = buffer_.data();
}

void JsonScanner::refill() {
  const auto left = end_ - at_;
  consumed_bytes_ += at_ - begin_;
  std::memmove(buffer_.data(), at_, static_cast<size_t>(left));
  const int64_t wanted = std::min<int64_t>(kPieceBytes - left, file_->size_bytes() - next_read_);
  const std::span<char> room(buffer_.data() + left, static_cast<size_t>(wanted));
  file_->read_at(next_read_, std::as_writable_bytes(room));
  next_read_ += wanted;
  begin_ = at_ = buffer_.data();
  end_ = begin_ + left + wanted;
}

void JsonScanner::fail_with(std::string_view what) const {
  if (subject_.empty()) throw Error(path_, ": byte ", position_bytes(), ": ", what);
  throw Error(path_, ": ", subject_kind_, " ", printable(subject_), ": byte ", position_bytes(),
              ": ", what);
}

void JsonScanner::fail(std::string_view expected) {
  std::string what =
      at_ == end_ ? "the text ends" : "found '" + printable(std::string_view(at_, 1)) + "'";
  fail_with(what.append(", expected ").append(expected));
}

void JsonScanner::skip_space() {
  ensure_token();
  while (at_ != end_ && is_space(*at_)) {
    ++at_;
    if (at_ == end_) ensure_token();
  }
  ensure_token();
}

char JsonScanner::peek() {
  skip_space();
  return at_ == end_ ? '\0' : *at_;
}

bool JsonScanner::accept(char symbol) {
  if (peek() != symbol) return false;
  ++at_;
  return true;
}

void JsonScanner::expect(char symbol) {
  if (accept(symbol)) return;
  fail(std::string("'") + symbol + "'");
}

void JsonScanner::expect_end() {
  skip_space();
  if (at_ != end_) fail("the end of the text");
}

std::string_view JsonScanner::string() {
  if (peek() != '"') fail("a string");
  const char* start = ++at_;
  unsigned high_bits = 0;
  while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20) {
    high_bits |= static_cast<unsigned char>(*at_);
    ++at_;
  }
  if (at_ != end_ && *at_ == '\\') return escaped_string(start);
  if (at_ == end_ && !exhausted()) fail_with("a string of more than 65536 bytes");
  if (at_ == end_ || *at_ != '"') fail("the end of a string");
  const auto length = static_cast<size_t>(at_ - start);
  if (high_bits >= 0x80 && !simdjson::validate_utf8(start, length)) {
    fail_with("a string is not UTF-8");
  }
  ++at_;
  return {start, length};
}

std::string_view JsonScanner::escaped_string(const char* start) {
  scratch_.assign(start, at_);
  while (at_ != end_ && *at_ != '"') {
    if (*at_ == '\\') {
      ++at_;
      append_escape();
      continue;
    }
    if (static_cast<unsigned char>(*at_) < 0x20) fail("the end of a string");
    scratch_ += *at_++;
  }
  if (at_ == end_ && !exhausted()) fail_with("a string of more than 65536 bytes");
  if (at_ == end_) fail("the end of a string");
  if (!simdjson::validate_utf8(scratch_.data(), scratch_.size())) {
    fail_with("a string is not UTF-8");
  }
  ++at_;
  return scratch_;
}

// Four hexadecimal digits.
uint32_t JsonScanner::hex_unit() {
  uint32_t unit = 0;
  for (int i = 0; i < 4; ++i) {
    if (at_ == end_) fail("a hexadecimal digit");
    const char c = *at_;
    if (is_digit(c)) {
      unit = unit * 16 + static_cast<uint32_t>(c - '0');
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      unit = unit * 16 + static_cast<uint32_t>((c | 0x20) - 'a' + 10);
    } else {
      fail("a hexadecimal digit");
    }
    ++at_;
  }
  return unit;
}

// What stands behind a backslash. Appends its UTF-8 to scratch_.
void JsonScanner::append_escape() {
  constexpr std::string_view kShort = "\"\\/bfnrt";
  constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
  if (at_ == end_) fail("an escape");
  const char kind = *at_;
  if (const size_t i = kShort.find(kind); i != std::string_view::npos) {
    scratch_ += kMeaning[i];
    ++at_;
    return;
  }
  if (kind != 'u') fail("an escape");
  ++at_;
  uint32_t point = hex_unit();
  if (point >= 0xdc00 && point < 0xe000) fail_with("a lone surrogate in a string");
  if (point >= 0xd800 && point < 0xdc00) {
    if (end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u')
      fail_with("a lone surrogate in a string");
    at_ += 2;
    const uint32_t low = hex_unit();
    if (low < 0xdc00 || low >= 0xe000) fail_with("a lone surrogate in a string");
    point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
  }
  const auto append = [this](uint32_t byte) { scratch_ += static_cast<char>(byte); };
  if (point < 0x80) {
    append(point);
  } else if (point < 0x800) {
    append(0xc0 | (point >> 6));
    append(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    append(0xe0 | (point >> 12));
    append(0x80 | ((point >> 6) & 0x3f));
    append(0x80 | (point & 0x3f));
  } else {
    append(0xf0 | (point >> 18));
    append(0x80 | ((point >> 12) & 0x3f));
    append(0x80 | ((point >> 6) & 0x3f));
    append(0x80 | (point & 0x3f));
  }
}

int64_t JsonScanner::natural() {
  if (!is_digit(peek())) fail("a non-negative integer");
  const char* start = at_;
  int64_t value = 0;
  for (; at_ != end_ && is_digit(*at_); ++at_) {
    if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
        __builtin_add_overflow(value, int64_t{*at_ - '0'}, &value)) {
      fail_with("an integer of 2^63 or more");
    }
  }
  if (*start == '0' && at_ - start > 1) fail_with("an integer with leading zeros");
  if (at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E')) fail("a non-negative integer");
  return value;
}

void JsonScanner::skip_digits() {
  if (at_ == end_ || !is_digit(*at_)) fail("a digit");
  while (at_ != end_ && is_digit(*at_)) ++at_;
}

void JsonScanner::skip_number() {
  if (at_ != end_ && *at_ == '-') ++at_;
  if (at_ != end_ && *at_ == '0') {
    ++at_;
  } else {
    skip_digits();
  }
  if (at_ != end_ && *at_ == '.') {
    ++at_;
    skip_digits();
  }
  if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
    ++at_;
    if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    skip_digits();
  }
}

void JsonScanner::skip_value() {
  std::string closers;  // of the open scopes, innermost last
  do {
    const char next = peek();
    bool opened = false;
    if (next == '{' || next == '[') {
      ++at_;
      closers += next == '{' ? '}' : ']';
      if (closers.size() > kDeepest) fail_with("nested deeper than 64 levels");
      opened = true;
    } else if (next == '"') {
      string();
    } else {
      bool literal = false;
      for (const std::string_view word : {"true", "false", "null"}) {
        if (std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(word)) {
          at_ += word.size();
          literal = true;
          break;
        }
      }
      if (!literal) skip_number();
    }
    // Close what ends here; then a comma, or the first member of what was opened, leads on.
    while (!closers.empty() && peek() == closers.back()) {
      ++at_;
      closers.pop_back();
      opened = false;
    }
    if (closers.empty()) return;
    if (!opened) expect(',');
    if (closers.back() == '}') {
      string();
      expect(':');
    }
  } while (true);
}

}  // namespace k3
