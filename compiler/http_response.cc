// A server that ignores Range answers 200 and sends 17 GB; a cache answers with other bytes than
// were asked for; a proxy compresses. Each of these has been read by somebody as a header that is
// not JSON. All of them show in the head, so the head is judged in full before the body is touched,
// and the body is then held to what the head promised.
#include "compiler/http_response.h"

#include <algorithm>
#include <charconv>

#include "schema/error.h"
#include "schema/printable.h"

namespace k3 {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal_without_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Digits alone, below 2^63.
std::optional<int64_t> parse_natural(std::string_view text) {
  int64_t number = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct ContentRange {
  ByteRange range;
  int64_t file_bytes = 0;
};

ContentRange parse_content_range(const std::string& url, std::string_view text) {
  const auto fail = [&](std::string_view expected) {
    throw Error(url, ": Content-Range is \"", printable(text), "\", expected ", expected);
  };
  constexpr std::string_view kForm = "bytes FIRST-LAST/LENGTH";
  const size_t space = text.find(' ');
  const size_t slash = text.find('/');
  const size_t dash = text.find('-');
  if (space == std::string_view::npos || slash == std::string_view::npos ||
      !equal_without_case(text.substr(0, space), "bytes") || dash < space || dash > slash) {
    fail(kForm);
  }
  if (trimmed(text.substr(slash + 1)) == "*") fail("the length of the file in place of the *");
  const auto first = parse_natural(trimmed(text.substr(space + 1, dash - space - 1)));
  const auto last = parse_natural(trimmed(text.substr(dash + 1, slash - dash - 1)));
  const auto length = parse_natural(trimmed(text.substr(slash + 1)));
  if (!first || !last || !length) fail(kForm);
  if (*first > *last || *last >= *length) fail("FIRST <= LAST < LENGTH");
  return {{*first, *last}, *length};
}

void refuse_encoding(const std::string& url, const HttpHead& head) {
  if (head.encoding().empty()) return;
  throw Error(url, ": the body is encoded as ", printable(head.encoding()),
              ", expected the file's own bytes, as asked for");
}

}  // namespace

std::string range_text(const ByteRange& range) {
  return std::to_string(range.first) + "-" + std::to_string(range.last);
}

bool HttpHead::is_redirect() const {
  return status_ == 301 || status_ == 302 || status_ == 303 || status_ == 307 || status_ == 308;
}

bool HttpHead::is_transient() const {
  return status_ == 429 || status_ == 500 || status_ == 502 || status_ == 503 || status_ == 504;
}

void HttpHead::add_line(const std::string& url, std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string_view name = trimmed(line.substr(0, colon));
  const std::string_view text = trimmed(line.substr(colon + 1));
  const auto set_once = [&](std::optional<std::string>& field) {
    if (field && *field != text) {
      throw Error(url, ": answered with two different headers ", printable(name));
    }
    field = text;
  };
  if (equal_without_case(name, "Content-Range")) {
    set_once(content_range_);
  } else if (equal_without_case(name, "Location")) {
    set_once(location_);
  } else if (equal_without_case(name, "Content-Length")) {
    const std::optional<int64_t> bytes = parse_natural(text);
    if (!bytes || (content_length_ && *content_length_ != *bytes)) {
      throw Error(url, ": Content-Length is \"", printable(text), "\", expected one number");
    }
    content_length_ = bytes;
  } else if (equal_without_case(name, "ETag")) {
    entity_tag_ = text;
  } else if (equal_without_case(name, "Content-Encoding")) {
    if (!equal_without_case(text, "identity")) encoding_ = text;
  } else if (equal_without_case(name, "Transfer-Encoding")) {
    if (!equal_without_case(text, "chunked")) encoding_ = text;
  }
}

ExpectedBody expect_range(const std::string& url, const HttpHead& head, const ByteRange& asked) {
  if (head.status() == 200) {
    throw Error(url, ": answered 200 to a request for bytes ", range_text(asked),
                ", expected 206: the server ignores ranges, so the body was not read");
  }
  if (head.status() == 416) {
    throw Error(
        url, ": answered 416 to a request for bytes ", range_text(asked), ": it has no such bytes",
        head.content_range() ? ", Content-Range is \"" + printable(*head.content_range()) + '"'
                             : "");
  }
  if (head.status() != 206) {
    throw Error(url, ": answered ", head.status(), " to a request for bytes ", range_text(asked),
                ", expected 206");
  }
  refuse_encoding(url, head);
  if (!head.content_range()) {
    throw Error(url, ": answered 206 without Content-Range, expected bytes ", range_text(asked));
  }
  const auto [sent, file_bytes] = parse_content_range(url, *head.content_range());
  const ByteRange wanted{asked.first, std::min(asked.last, file_bytes - 1)};
  if (sent.first != wanted.first || sent.last != wanted.last) {
    throw Error(url, ": answered with bytes ", range_text(sent), " of ", file_bytes,
                ", asked for bytes ", range_text(asked));
  }
  if (head.content_length() && *head.content_length() != sent.bytes()) {
    throw Error(url, ": Content-Length is ", *head.content_length(), ", expected ", sent.bytes(),
                " for bytes ", range_text(sent));
  }
  return {sent.bytes(), file_bytes};
}

void expect_whole(const std::string& url, const HttpHead& head, int64_t limit_bytes) {
  if (head.status() != 200) throw Error(url, ": answered ", head.status(), ", expected 200");
  refuse_encoding(url, head);
  if (head.content_length().value_or(0) > limit_bytes) {
    throw Error(url, ": has ", *head.content_length(), " bytes, at most ", limit_bytes,
                " are read of such a file");
  }
}

}  // namespace k3
