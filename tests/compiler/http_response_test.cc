#include "compiler/http_response.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "tests/compiler/checkpoint_folder.h"

namespace k3 {
namespace {

using test::contains;
using test::message_of;

constexpr ByteRange kAsked{0, 99};

HttpHead head_of(int status, std::initializer_list<const char*> lines) {
  HttpHead head(status);
  for (const char* line : lines) head.add_line("URL", line);
  return head;
}

std::string fault(int status, std::initializer_list<const char*> lines) {
  return message_of([&] { expect_range("URL", head_of(status, lines), kAsked); });
}

TEST(HttpResponse, TheBytesAskedForAreAccepted) {
  const HttpHead head = head_of(206, {"content-RANGE:  Bytes 0-99/1234 \r\n", "ETag: \"x\"",
                                      "Content-Length: 100", "Content-Encoding: identity"});
  const ExpectedBody body = expect_range("URL", head, kAsked);
  EXPECT_EQ(body.bytes, 100);
  EXPECT_EQ(body.file_bytes, 1234);
  EXPECT_EQ(head.entity_tag(), "\"x\"");
}

TEST(HttpResponse, AFileThatEndsWithinTheRangeIsAccepted) {
  const ExpectedBody body =
      expect_range("URL", head_of(206, {"Content-Range: bytes 0-9/10"}), kAsked);
  EXPECT_EQ(body.bytes, 10);
  EXPECT_EQ(body.file_bytes, 10);
}

TEST(HttpResponse, EveryOtherStatusIsNamed) {
  EXPECT_EQ(fault(200, {"Content-Range: bytes 0-99/1234"}),
            "URL: answered 200 to a request for bytes 0-99, expected 206: the server ignores "
            "ranges, so the body was not read");
  EXPECT_EQ(fault(416, {"Content-Range: bytes */0"}),
            "URL: answered 416 to a request for bytes 0-99: it has no such bytes, Content-Range is "
            "\"bytes */0\"");
  EXPECT_EQ(fault(404, {}), "URL: answered 404 to a request for bytes 0-99, expected 206");
}

TEST(HttpResponse, OtherBytesThanThoseAskedForAreRefused) {
  EXPECT_EQ(fault(206, {"Content-Range: bytes 1-100/1234"}),
            "URL: answered with bytes 1-100 of 1234, asked for bytes 0-99");
  EXPECT_EQ(fault(206, {"Content-Range: bytes 0-49/1234"}),
            "URL: answered with bytes 0-49 of 1234, asked for bytes 0-99");
  EXPECT_EQ(fault(206, {"Content-Range: bytes 0-199/1234"}),
            "URL: answered with bytes 0-199 of 1234, asked for bytes 0-99");
}

TEST(HttpResponse, ALengthThatContradictsTheRangeIsRefused) {
  EXPECT_EQ(fault(206, {"Content-Range: bytes 0-99/1234", "Content-Length: 50"}),
            "URL: Content-Length is 50, expected 100 for bytes 0-99");
  EXPECT_TRUE(contains(fault(206, {"Content-Length: 5", "Content-Length: 6"}),
                       "Content-Length is \"6\", expected one number"));
  EXPECT_TRUE(contains(fault(206, {"Content-Length: -5"}), "Content-Length is \"-5\""));
}

TEST(HttpResponse, AContentRangeThatSaysNothingIsRefused) {
  EXPECT_EQ(fault(206, {}), "URL: answered 206 without Content-Range, expected bytes 0-99");
  EXPECT_EQ(fault(206, {"Content-Range: bytes 0-99/*"}),
            "URL: Content-Range is \"bytes 0-99/*\", expected the length of the file in place of "
            "the *");
  for (const char* line :
       {"Content-Range: bytes 0-99", "Content-Range: 0-99/1234", "Content-Range: lines 0-99/1234",
        "Content-Range: bytes -99/1234", "Content-Range: bytes 0-99/12x4",
        "Content-Range: bytes/0-9 9", "Content-Range: bytes 0-99/99999999999999999999"}) {
    EXPECT_TRUE(contains(fault(206, {line}), "expected bytes FIRST-LAST/LENGTH")) << line;
  }
  EXPECT_TRUE(contains(fault(206, {"Content-Range: bytes 0-99/99"}), "expected FIRST <= LAST"));
  EXPECT_TRUE(contains(fault(206, {"Content-Range: bytes 9-0/99"}), "expected FIRST <= LAST"));
  EXPECT_TRUE(
      contains(fault(206, {"Content-Range: bytes 0-99/100", "Content-Range: bytes 0-99/200"}),
               "two different headers Content-Range"));
}

TEST(HttpResponse, AnEncodedBodyIsRefused) {
  EXPECT_EQ(fault(206, {"Content-Range: bytes 0-99/1234", "Content-Encoding: gzip"}),
            "URL: the body is encoded as gzip, expected the file's own bytes, as asked for");
  EXPECT_TRUE(contains(fault(206, {"Transfer-Encoding: gzip, chunked"}), "encoded as gzip"));
  EXPECT_TRUE(
      contains(message_of([] { expect_whole("URL", head_of(200, {"Content-Encoding: br"}), 9); }),
               "encoded as br"));
}

TEST(HttpResponse, AWholeFileHasALimit) {
  expect_whole("URL", head_of(200, {"Content-Length: 9"}), 9);
  EXPECT_EQ(message_of([] { expect_whole("URL", head_of(200, {"Content-Length: 10"}), 9); }),
            "URL: has 10 bytes, at most 9 are read of such a file");
  EXPECT_EQ(message_of([] { expect_whole("URL", head_of(206, {}), 9); }),
            "URL: answered 206, expected 200");
}

}  // namespace
}  // namespace k3
