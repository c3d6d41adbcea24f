// Writes JSON as it goes, without a tree: every --json output and every report of both programs.
//
// A misplaced call (a value without its key, an end without its begin) is our own mistake and ends
// the process by K3_CHECK; what cannot be written as JSON (a NaN, an infinity, a byte that is not
// UTF-8) may come from data and throws.
#pragma once

#include <concepts>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <type_traits>
#include <vector>

namespace k3 {

class JsonWriter {
 public:
  // Writes to `out`, which must outlive the writer. `indent` is the number of spaces a level is
  // indented by; 0 writes everything on one line. The caller ends the last line.
  explicit JsonWriter(std::ostream& out, int indent = 0) : out_(out), indent_(indent) {}

  void begin_object() { open('{', Scope::kObject); }
  void end_object() { close('}', Scope::kObject); }
  void begin_array() { open('[', Scope::kArray); }
  void end_array() { close(']', Scope::kArray); }

  // The name of the next value; only directly inside an object. Keys are not checked for repeats.
  void key(std::string_view name);

  // Integers are written exactly, also beyond 2^53. A double is written in the shortest form that
  // reads back as the same double. Throws Error for a double that is not finite and for text that
  // is not UTF-8.
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(double number);
  template <std::integral Integer>
  void value(Integer number) {
    if constexpr (std::is_same_v<Integer, bool>) {
      write_token(number ? "true" : "false");
    } else if constexpr (std::is_signed_v<Integer>) {
      write_signed(number);
    } else {
      write_unsigned(number);
    }
  }
  void null() { write_token("null"); }

  // key(name) and value(content) in one.
  template <class Value>
  void member(std::string_view name, const Value& content) {
    key(name);
    value(content);
  }

  // True once one complete value has been written.
  bool complete() const { return written_ && scopes_.empty(); }

 private:
  enum class Scope : uint8_t { kObject, kArray };
  struct Level {
    Scope scope;
    bool empty;
  };

  void open(char bracket, Scope scope);
  void close(char bracket, Scope scope);
  void begin_value();
  void begin_line();
  void write_token(std::string_view token);
  void write_signed(int64_t number);
  void write_unsigned(uint64_t number);
  void write_string(std::string_view text);

  std::ostream& out_;
  int indent_;
  std::vector<Level> scopes_;
  bool after_key_ = false;
  bool written_ = false;
};

}  // namespace k3
