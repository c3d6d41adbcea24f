#include "schema/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

#include <simdjson.h>

#include "schema/error.h"
#include "schema/printable.h"

namespace k3 {

void JsonWriter::begin_line() {
  if (indent_ == 0) return;
  out_ << '\n';
  const size_t spaces = static_cast<size_t>(indent_) * scopes_.size();
  for (size_t i = 0; i < spaces; ++i) out_ << ' ';
}

// Commas and line breaks before a value; inside an object key() has written them already.
void JsonWriter::begin_value() {
  K3_CHECK(!complete());
  if (after_key_) {
    after_key_ = false;
  } else if (!scopes_.empty()) {
    K3_CHECK(scopes_.back().scope == Scope::kArray);
    if (!scopes_.back().empty) out_ << ',';
    scopes_.back().empty = false;
    begin_line();
  }
  written_ = true;
}

void JsonWriter::open(char bracket, Scope scope) {
  begin_value();
  out_ << bracket;
  scopes_.push_back({scope, true});
}

void JsonWriter::close(char bracket, Scope scope) {
  K3_CHECK(!scopes_.empty() && scopes_.back().scope == scope && !after_key_);
  const bool empty = scopes_.back().empty;
  scopes_.pop_back();
  if (!empty) begin_line();
  out_ << bracket;
}

void JsonWriter::key(std::string_view name) {
  K3_CHECK(!scopes_.empty() && scopes_.back().scope == Scope::kObject && !after_key_);
  if (!scopes_.back().empty) out_ << ',';
  scopes_.back().empty = false;
  begin_line();
  write_string(name);
  out_ << (indent_ == 0 ? ":" : ": ");
  after_key_ = true;
}

void JsonWriter::value(std::string_view text) {
  begin_value();
  write_string(text);
}

void JsonWriter::value(double number) {
  if (!std::isfinite(number)) throw Error("JSON has no number for ", number);
  begin_value();
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out_.write(digits.data(), end - digits.data());
}

void JsonWriter::write_token(std::string_view token) {
  begin_value();
  out_ << token;
}

// to_chars, not operator<<: a stream's locale may group digits.
void JsonWriter::write_signed(int64_t number) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  write_token({digits.data(), static_cast<size_t>(end - digits.data())});
}

void JsonWriter::write_unsigned(uint64_t number) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  write_token({digits.data(), static_cast<size_t>(end - digits.data())});
}

void JsonWriter::write_string(std::string_view text) {
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    throw Error("JSON cannot hold a text of ", text.size(), " bytes that is not UTF-8");
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  out_ << '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out_ << '\\' << c;
    } else if (c == '\n') {
      out_ << "\\n";
    } else if (c == '\t') {
      out_ << "\\t";
    } else if (is_control(c)) {
      out_ << "\\u00" << kHex[byte >> 4] << kHex[byte & 15u];
    } else {
      out_ << c;
    }
  }
  out_ << '"';
}

}  // namespace k3
