// Reads JSON token by token, in bounded memory: the headers and the index of a checkpoint.
//
// These two are long and flat: K3's index alone is 58 MB with 497,220 keys. simdjson, which reads
// every other JSON of ours, wants the whole text and four more bytes per byte of it, and a repeated
// key passes it unseen; this scanner needs one megabyte whatever the file's size, and its caller
// sees every key. It knows tokens only: which keys may stand where is the caller's grammar.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/error.h"
#include "schema/file.h"

namespace k3 {

class JsonScanner {
 public:
  // A string in a streamed file may have this many bytes; longer ones are refused where they do not
  // fit the buffer. Strings in memory may have any length.
  static constexpr size_t kLongestStreamedString = size_t{64} << 10;

  // Scans `text`, which must outlive the scanner. `path` is for messages.
  JsonScanner(std::string path, std::string_view text);
  // Scans `file` from its start in pieces; it must outlive the scanner.
  explicit JsonScanner(const File& file);

  // What messages say behind the path, e.g. the tensor being read. Not copied.
  void set_subject(std::string_view kind, std::string_view name) {
    subject_kind_ = kind;
    subject_ = name;
  }

  // All of these skip white space first and throw Error with the path, the subject, the byte, what
  // was found and what was expected.
  char peek();  // the next byte, 0 at the end; not consumed
  bool accept(char symbol);
  void expect(char symbol);
  // A string, escapes resolved, valid UTF-8; it may hold any character. Valid until the next call.
  std::string_view string();
  // A non-negative integer below 2^63, without sign, fraction or exponent.
  int64_t natural();
  // Any value; at most 64 levels deep.
  void skip_value();
  // Nothing but white space may follow.
  void expect_end();

  int64_t position_bytes() const { return consumed_bytes_ + static_cast<int64_t>(at_ - begin_); }

 private:
  void refill();
  // Makes the next token contiguous in memory.
  void ensure_token() {
    if (static_cast<size_t>(end_ - at_) <= kLongestStreamedString && !exhausted()) refill();
  }
  bool exhausted() const { return file_ == nullptr || next_read_ == file_->size_bytes(); }
  void skip_space();
  std::string_view escaped_string(const char* start);
  void append_escape();
  uint32_t hex_unit();
  void skip_number();
  void skip_digits();
  [[noreturn]] void fail(std::string_view expected);
  [[noreturn]] void fail_with(std::string_view what) const;

  std::string path_;
  std::string_view subject_kind_;
  std::string_view subject_;
  const File* file_ = nullptr;
  int64_t next_read_ = 0;
  int64_t consumed_bytes_ = 0;  // of the file, before begin_
  std::vector<char> buffer_;
  const char* begin_ = nullptr;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  std::string scratch_;
};

}  // namespace k3
