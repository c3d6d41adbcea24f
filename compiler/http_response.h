// The head of an HTTP response, and what must be true of it before a byte of its body is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace k3 {

// Bytes of a file, both ends included, as HTTP counts them.
struct ByteRange {
  int64_t first = 0;
  int64_t last = 0;

  int64_t bytes() const { return last - first + 1; }
};

// "first-last", as a Range header wants it.
std::string range_text(const ByteRange& range);

// Status line and the headers we look at. Names are compared without case.
class HttpHead {
 public:
  HttpHead() = default;
  explicit HttpHead(int status) : status_(status) {}

  // Takes one line, with or without its line end. `url` is for messages. Throws Error when the line
  // is a header that decides about the body and that stands there twice or cannot be parsed.
  void add_line(const std::string& url, std::string_view line);

  int status() const { return status_; }
  bool is_redirect() const;   // one that names another place by Location
  bool is_transient() const;  // another try may succeed: 429, 500, 502, 503, 504
  std::optional<int64_t> content_length() const { return content_length_; }
  const std::optional<std::string>& content_range() const { return content_range_; }
  const std::optional<std::string>& location() const { return location_; }
  const std::string& entity_tag() const { return entity_tag_; }  // empty: none
  // The Content-Encoding, or the Transfer-Encoding if that is other than chunked; empty: the body
  // is the file's bytes.
  const std::string& encoding() const { return encoding_; }

 private:
  int status_ = 0;
  std::optional<int64_t> content_length_;
  std::optional<std::string> content_range_;
  std::optional<std::string> location_;
  std::string entity_tag_;
  std::string encoding_;
};

struct ExpectedBody {
  int64_t bytes = 0;       // of the body
  int64_t file_bytes = 0;  // of the whole file
};

// What the body that answers a request for `asked` brings. The one right answer is 206 with exactly
// these bytes, or with those of them that the file has. Throws Error with a message of its own for
// each other: 200, 416, no range, an unknown file length, other bytes, fewer, a body of another
// length, an encoded body.
ExpectedBody expect_range(const std::string& url, const HttpHead& head, const ByteRange& asked);

// The same for a whole file of at most `limit_bytes`, of which the head may not tell the length.
void expect_whole(const std::string& url, const HttpHead& head, int64_t limit_bytes);

}  // namespace k3
