#include "compiler/remote_header.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/compiler/checkpoint_folder.h"
#include "tests/compiler/loopback_server.h"

namespace k3 {
namespace {

using namespace std::chrono_literals;
using test::answer_status;
using test::contains;
using test::content_length;
using test::content_range;
using test::http_head;
using test::HttpConnection;
using test::HttpRequest;
using test::LoopbackServer;
using test::message_of;

constexpr int64_t kFirst = 1 << 10;  // bytes of the first request
const std::string kToken = "hf_hunter2";

RemoteOptions quick() {
  RemoteOptions options;
  options.first_bytes = kFirst;
  options.first_wait = 5ms;
  options.stall_timeout = 10s;
  return options;
}

// A safetensors file with a header of `header_bytes` and a megabyte behind it.
std::string shard(int64_t header_bytes) {
  std::string json = "{}";
  json.resize(static_cast<size_t>(header_bytes), ' ');
  return test::with_length(json) + std::string(1 << 20, 'x');
}

// The header of `path` on the server.
struct Read {
  int64_t file_bytes = 0;
  std::string json;
};
Read read(const LoopbackServer& server, const RemoteOptions& options = quick()) {
  Read read;
  RemoteReader reader(server.url(), options);
  reader.read_headers({server.url("/f")}, [&](size_t, int64_t file_bytes, std::string_view json) {
    read.file_bytes = file_bytes;
    read.json = json;
  });
  return read;
}

// The message of the error that the server's answer causes, without the URL that begins it.
std::string fault(const LoopbackServer& server, const RemoteOptions& options = quick()) {
  const std::string message = message_of([&] { read(server, options); });
  const std::string start = server.url("/f: ");
  EXPECT_TRUE(message.starts_with(start)) << message;
  return message.substr(std::min(start.size(), message.size()));
}

// A server that gives every request the same answer and goes on with `body` until it is cut off.
LoopbackServer::Handler endless(const std::string& head) {
  return [head](const HttpRequest&, HttpConnection& connection) {
    connection.send(head);
    const std::string body(1 << 14, 'x');
    while (connection.send(body)) {
    }
    connection.close();
  };
}

LoopbackServer::Handler once(const std::string& answer) {
  return [answer](const HttpRequest&, HttpConnection& connection) {
    connection.send(answer);
    connection.close();
  };
}

LoopbackServer::Handler file(const std::string& bytes) {
  return [bytes](const HttpRequest& request, HttpConnection& connection) {
    test::serve(request, connection, bytes);
  };
}

TEST(RemoteHeader, AShortHeaderTakesOneRequest) {
  const LoopbackServer server(file(shard(kFirst - 8)));
  const Read header = read(server);
  EXPECT_EQ(header.json.size(), kFirst - 8);
  EXPECT_EQ(header.file_bytes, kFirst + (1 << 20));
  ASSERT_EQ(server.requests().size(), 1u);
  EXPECT_EQ(server.requests()[0].header("Range"), "bytes=0-1023");
  EXPECT_EQ(server.requests()[0].header("Accept-Encoding"), "identity");
  EXPECT_LT(server.bytes_sent(), kFirst + 500);
}

TEST(RemoteHeader, ALongerHeaderTakesASecondRequestForTheRest) {
  const std::string bytes = shard(100'000);
  const LoopbackServer server(file(bytes));
  EXPECT_EQ(read(server).json, bytes.substr(8, 100'000));
  ASSERT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(server.requests()[1].header("Range"), "bytes=1024-100007");
}

TEST(RemoteHeader, AFileShorterThanTheFirstRequestIsRead) {
  const LoopbackServer server(file(test::with_length("{}")));
  EXPECT_EQ(read(server).json, "{}");
  EXPECT_EQ(read(server).file_bytes, 10);
}

TEST(RemoteHeader, A200ToARangeIsRefusedBeforeItsBody) {
  const LoopbackServer server(endless(http_head("200 OK", content_length(int64_t{17} << 30))));
  EXPECT_TRUE(contains(fault(server), "answered 200 to a request for bytes 0-1023"));
  EXPECT_LT(server.bytes_sent(), 8 << 20);  // what fits into the buffers of both sockets
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(RemoteHeader, A200ToTheSecondRangeIsRefusedBeforeItsBody) {
  const std::string bytes = shard(100'000);
  const LoopbackServer server([&](const HttpRequest& request, HttpConnection& connection) {
    if (request.range()->first == 0) return test::serve(request, connection, bytes);
    endless(http_head("200 OK", content_length(int64_t{17} << 30)))(request, connection);
  });
  EXPECT_TRUE(contains(fault(server), "answered 200 to a request for bytes 1024-100007"));
  EXPECT_LT(server.bytes_sent(), 8 << 20);
}

TEST(RemoteHeader, AnEndlessBodyIsCutOff) {
  const LoopbackServer server(
      endless(http_head("206 Partial Content", content_range(0, kFirst - 1, 1 << 20))));
  EXPECT_EQ(fault(server), "the body goes on behind the 1024 bytes that were asked for");
  EXPECT_LT(server.bytes_sent(), 8 << 20);
}

TEST(RemoteHeader, AnEndlessErrorPageIsCutOff) {
  const LoopbackServer server(endless(http_head("503 Busy", "")));
  EXPECT_EQ(fault(server), "answered 503, at try 4 of 4");
  EXPECT_LT(server.bytes_sent(), 4 * (8 << 20));
}

TEST(RemoteHeader, AnEndlessHeadIsCutOff) {
  const LoopbackServer server([](const HttpRequest&, HttpConnection& connection) {
    connection.send("HTTP/1.1 206 Partial Content\r\n");
    while (connection.send("X-Filler: 0123456789\r\n")) {
    }
    connection.close();
  });
  EXPECT_EQ(fault(server), "the head of the answer has more than 65536 bytes");
}

TEST(RemoteHeader, ShiftedShortEncodedAndRefusedRangesHaveTheirOwnMessages) {
  const auto fault_of = [](const std::string& status, const std::string& lines) {
    return fault(LoopbackServer(once(http_head(status, lines))));
  };
  const std::string partial = "206 Partial Content";
  EXPECT_EQ(fault_of(partial, content_range(1, 1024, 5000) + content_length(1024)),
            "answered with bytes 1-1024 of 5000, asked for bytes 0-1023");
  EXPECT_EQ(fault_of(partial, content_range(0, 511, 5000) + content_length(512)),
            "answered with bytes 0-511 of 5000, asked for bytes 0-1023");
  EXPECT_EQ(fault_of(partial, content_range(0, 1023, 5000) + content_length(512)),
            "Content-Length is 512, expected 1024 for bytes 0-1023");
  EXPECT_EQ(fault_of(partial, content_length(1024)),
            "answered 206 without Content-Range, expected bytes 0-1023");
  EXPECT_EQ(fault_of(partial, content_range(0, 1023, 5000) + "Content-Encoding: gzip\r\n"),
            "the body is encoded as gzip, expected the file's own bytes, as asked for");
  EXPECT_TRUE(contains(fault_of("404 Not Found", content_length(0)), "answered 404 to a request"));
  EXPECT_EQ(fault_of("401 Unauthorized", content_length(0)),
            "answered 401: no access without a token; HF_TOKEN is not set");
}

TEST(RemoteHeader, AnEmptyFileAnswers416) {
  const LoopbackServer server(file(""));
  EXPECT_EQ(fault(server),
            "answered 416 to a request for bytes 0-1023: it has no such bytes, Content-Range is "
            "\"bytes */0\"");
}

TEST(RemoteHeader, WhatIsNotSafetensorsIsSaidToBe) {
  const LoopbackServer page(file("<!DOCTYPE html><html><body>Please log in</body></html>"));
  EXPECT_TRUE(contains(fault(page), "cut short, or not safetensors"));
  const LoopbackServer tiny(file("123456789"));
  EXPECT_TRUE(contains(fault(tiny), "not safetensors"));
  const LoopbackServer tinier(file("1234567"));
  EXPECT_EQ(fault(tinier), "has 7 bytes, a safetensors file has at least 10");
  std::string other = shard(100'000);
  other[8] = '<';
  const LoopbackServer list(file(other));
  EXPECT_EQ(fault(list), "the header does not start with '{'");
  EXPECT_EQ(list.requests().size(), 1u);
}

TEST(RemoteHeader, AHugeHeaderIsNotAskedFor) {
  const LoopbackServer server([](const HttpRequest&, HttpConnection& connection) {
    std::string bytes = test::with_length("{");
    bytes[0] = 1;
    bytes[3] = 8;  // 2^27 + 1
    bytes.resize(kFirst, ' ');
    connection.send(http_head("206 Partial Content",
                              content_range(0, kFirst - 1, 1 << 30) + content_length(kFirst)) +
                    bytes);
  });
  EXPECT_EQ(fault(server), "the header has 134217729 bytes, at most 134217728 are fetched");
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(RemoteHeader, AFileThatChangesBetweenTheRequestsIsNoticed) {
  const std::string bytes = shard(100'000);
  const LoopbackServer longer([&](const HttpRequest& request, HttpConnection& connection) {
    test::serve(request, connection, request.range()->first == 0 ? bytes : bytes + "x");
  });
  EXPECT_TRUE(contains(fault(longer), "the file changed between two requests"));
  const LoopbackServer tagged([&](const HttpRequest& request, HttpConnection& connection) {
    const auto [first, last] = *request.range();
    connection.send(
        http_head("206 Partial Content", content_range(first, last, std::ssize(bytes)) +
                                             content_length(last - first + 1) + "ETag: \"" +
                                             std::to_string(first) + "\"\r\n") +
        bytes.substr(static_cast<size_t>(first), static_cast<size_t>(last - first + 1)));
  });
  EXPECT_TRUE(contains(fault(tagged), "ETag \"0\", now 1148584 and \"1024\""));
}

TEST(RemoteHeader, NoticesBeforeTheAnswerAreNotTheAnswer) {
  const std::string bytes = shard(10);
  const LoopbackServer server([&](const HttpRequest& request, HttpConnection& connection) {
    connection.send("HTTP/1.1 103 Early Hints\r\nContent-Range: bytes 7-9/10\r\n\r\n");
    test::serve(request, connection, bytes);
  });
  EXPECT_EQ(read(server).json.size(), 10u);
}

// Tries

TEST(RemoteHeader, ABusyServerIsAskedAgain) {
  const std::string bytes = shard(10);
  for (const char* status :
       {"429 Slow Down", "500 Oops", "502 Bad Gateway", "503 Busy", "504 Late"}) {
    std::atomic<int> left = 3;
    const LoopbackServer server([&](const HttpRequest& request, HttpConnection& connection) {
      if (left-- > 0) return answer_status(connection, status);
      test::serve(request, connection, bytes);
    });
    EXPECT_EQ(read(server).json.size(), 10u) << status;
    EXPECT_EQ(server.requests().size(), 4u) << status;
  }
}

TEST(RemoteHeader, AfterFourTriesTheServerIsBelieved) {
  const LoopbackServer server([](const HttpRequest&, HttpConnection& connection) {
    answer_status(connection, "503 Busy");
  });
  RemoteOptions options = quick();
  options.first_wait = 20ms;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fault(server, options), "answered 503, at try 4 of 4");
  EXPECT_GE(std::chrono::steady_clock::now() - start, 140ms);  // 20 + 40 + 80
  EXPECT_EQ(server.requests().size(), 4u);
}

TEST(RemoteHeader, RetryAfterIsWaitedForUpToALimit) {
  const std::string bytes = shard(10);
  std::atomic<bool> busy = true;
  const LoopbackServer server([&](const HttpRequest& request, HttpConnection& connection) {
    if (busy.exchange(false)) return answer_status(connection, "429 Wait", "Retry-After: 1\r\n");
    test::serve(request, connection, bytes);
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read(server).json.size(), 10u);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 1s);

  const LoopbackServer closed([](const HttpRequest&, HttpConnection& connection) {
    answer_status(connection, "429 Wait", "Retry-After: 3600\r\n");
  });
  EXPECT_EQ(fault(closed), "answered 429 and asks to wait 3600 s, at most 60 s are waited");
  EXPECT_EQ(closed.requests().size(), 1u);
}

TEST(RemoteHeader, ACutConnectionIsTriedAgainFromWhereItsRequestBegan) {
  const std::string bytes = shard(100'000);
  std::atomic<int> cuts = 0;
  const LoopbackServer server([&](const HttpRequest& request, HttpConnection& connection) {
    if (request.range()->first == 0 || cuts++ > 0) return test::serve(request, connection, bytes);
    int64_t first = 0;
    int64_t last = 0;
    connection.send(test::right_head(request, std::ssize(bytes), first, last));
    connection.send(std::string(50'000, 'y'));
    connection.close();
  });
  EXPECT_EQ(read(server).json, bytes.substr(8, 100'000));
  ASSERT_EQ(server.requests().size(), 3u);
  EXPECT_EQ(server.requests()[2].header("Range"), "bytes=1024-100007");
}

TEST(RemoteHeader, AConnectionThatIsAlwaysCutIsSaidToBe) {
  const LoopbackServer server(
      once(http_head("206 Partial Content", content_range(0, 1023, 5000) + content_length(1024)) +
           "half"));
  EXPECT_EQ(fault(server), "the body was cut off after 4 of 1024 bytes, at try 4 of 4");
  EXPECT_EQ(server.requests().size(), 4u);
  const LoopbackServer unlengthened(
      once(http_head("206 Partial Content", content_range(0, 1023, 5000)) + "half"));
  EXPECT_EQ(fault(unlengthened), "the body was cut off after 4 of 1024 bytes, at try 4 of 4");
  const LoopbackServer chunked(
      once(http_head("200 OK", "Transfer-Encoding: chunked\r\n") + "4\r\nhalf\r\n"));
  EXPECT_EQ(
      message_of([&] { RemoteReader(chunked.url(), quick()).read_whole(chunked.url("/f"), 9); }),
      chunked.url("/f: the body was cut off after 4 bytes, at try 4 of 4"));
  const LoopbackServer silent(once(""));
  EXPECT_EQ(fault(silent), "the connection was cut before an answer, at try 4 of 4");
}

TEST(RemoteHeader, ASilentServerTimesOut) {
  const LoopbackServer server([](const HttpRequest&, HttpConnection& connection) {
    connection.send("HTTP/1.1 206 Partial Content\r\n");
    std::this_thread::sleep_for(300ms);
    connection.close();
  });
  RemoteOptions options = quick();
  options.stall_timeout = 50ms;
  options.tries = 2;
  EXPECT_EQ(fault(server, options), "timeout, not a byte came for 0.050 s, at try 2 of 2");
}

TEST(RemoteHeader, ATrickleTimesOutAndIsNotTriedAgain) {
  const LoopbackServer server([](const HttpRequest&, HttpConnection& connection) {
    connection.send(http_head("206 Partial Content", content_range(0, 1023, 5000)));
    while (connection.send("x")) std::this_thread::sleep_for(10ms);
    connection.close();
  });
  RemoteOptions options = quick();
  options.request_timeout = 200ms;
  const std::string message = fault(server, options);
  EXPECT_TRUE(contains(message, "timeout, after 0.200 s there are ")) << message;
  EXPECT_TRUE(contains(message, " of 1024 bytes"));
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(RemoteHeader, NobodyListeningIsSaidAtOnce) {
  std::string url;
  {
    const LoopbackServer server(once(""));
    url = server.url();
  }
  RemoteReader reader(url, quick());
  EXPECT_TRUE(contains(message_of([&] { reader.read_whole(url + "/f", 10); }),
                       url + "/f: Failed to connect"));
  EXPECT_EQ(reader.requests(), 1);
}

// Redirects and the token

TEST(RemoteHeader, ARedirectKeepsTheRangeAndLosesTheToken) {
  const std::string bytes = shard(100'000);
  const LoopbackServer store(file(bytes));
  const LoopbackServer server([&](const HttpRequest&, HttpConnection& connection) {
    answer_status(connection, "302 Found", "Location: " + store.url("/data?key=1") + "\r\n");
  });
  RemoteOptions options = quick();
  options.token = kToken;
  EXPECT_EQ(read(server, options).json.size(), 100'000u);
  ASSERT_EQ(server.requests().size(), 2u);
  ASSERT_EQ(store.requests().size(), 2u);
  for (const HttpRequest& request : server.requests()) {
    EXPECT_EQ(request.header("Authorization"), "Bearer " + kToken);
  }
  for (const HttpRequest& request : store.requests()) {
    EXPECT_EQ(request.path, "/data?key=1");
    EXPECT_EQ(request.head.find(kToken), std::string::npos);
  }
  EXPECT_EQ(store.requests()[0].header("Range"), "bytes=0-1023");
  EXPECT_EQ(store.requests()[1].header("Range"), "bytes=1024-100007");
}

TEST(RemoteHeader, WithinTheNamedHostTheTokenStays) {
  const std::string bytes = shard(10);
  const LoopbackServer server([&](const HttpRequest& request, HttpConnection& connection) {
    if (request.path == "/moved") return test::serve(request, connection, bytes);
    answer_status(connection, "307 Moved", "Location: moved\r\n");
  });
  RemoteOptions options = quick();
  options.token = kToken;
  EXPECT_EQ(read(server, options).json.size(), 10u);
  EXPECT_EQ(server.requests().back().header("Authorization"), "Bearer " + kToken);
}

TEST(RemoteHeader, WithoutATokenNoneIsSent) {
  const LoopbackServer server(file(shard(10)));
  read(server);
  EXPECT_EQ(server.requests()[0].header("Authorization"), "");
}

TEST(RemoteHeader, BadRedirectsAreNotFollowed) {
  const auto fault_of = [](const std::string& lines) {
    return fault(LoopbackServer([&](const HttpRequest&, HttpConnection& connection) {
      answer_status(connection, "302 Found", lines);
    }));
  };
  EXPECT_EQ(fault_of(""), "answered 302 without a Location");
  EXPECT_EQ(fault_of("Location: /f\r\n"), "redirected more than 5 times");
  EXPECT_EQ(fault_of("Location: http://host.invalid/x?signature=secret\r\n"),
            "a redirect: leads to http://host.invalid, expected https, or http to this machine");
  EXPECT_TRUE(contains(fault_of("Location: ftp://127.0.0.1/f\r\n"), "leads to ftp://, expected"));
  EXPECT_TRUE(contains(fault_of("Location: http://me:secret@127.0.0.1/f\r\n"), "a user name"));
}

TEST(RemoteHeader, TheTokenIsInNoMessageWhateverTheServerEchoes) {
  RemoteOptions options = quick();
  options.token = kToken;
  for (const std::string& lines :
       {"Content-Range: bytes " + kToken + "\r\n", "Content-Encoding: " + kToken + "\r\n",
        "Content-Length: " + kToken + "\r\n"}) {
    const LoopbackServer server(once(http_head("206 Partial Content", lines)));
    EXPECT_EQ(fault(server, options).find(kToken), std::string::npos) << lines;
  }
  const LoopbackServer away(
      once(http_head("302 Found", "Location: http://" + kToken + ".invalid/" + kToken + "\r\n")));
  EXPECT_EQ(fault(away, options).find(kToken), std::string::npos);
  const LoopbackServer closed(once(http_head("403 Forbidden", content_length(0))));
  EXPECT_EQ(fault(closed, options), "answered 403: no access with the token in HF_TOKEN");
}

TEST(RemoteHeader, ATokenThatCouldEndItsHeaderLineIsRefused) {
  RemoteOptions options = quick();
  options.token = kToken + "\r\nX: y";
  const std::string message = message_of([&] { RemoteReader("http://localhost", options); });
  EXPECT_TRUE(contains(message, "HF_TOKEN: holds"));
  EXPECT_EQ(message.find("hunter2"), std::string::npos);
}

TEST(RemoteHeader, NoProxyStandsBetweenTwoProgramsOfOneMachine) {
  const LoopbackServer proxy(once(""));
  const LoopbackServer server(file(shard(10)));
  ::setenv("http_proxy", proxy.url().c_str(), 1);
  EXPECT_EQ(read(server).json.size(), 10u);
  ::unsetenv("http_proxy");
  EXPECT_EQ(proxy.requests().size(), 0u);
}

// Many files

std::vector<std::string> urls(const LoopbackServer& server, int count) {
  std::vector<std::string> urls;
  for (int i = 0; i < count; ++i) urls.push_back(server.url("/").append(std::to_string(i)));
  return urls;
}

TEST(RemoteHeader, EightTransfersRunAtOnce) {
  const std::string bytes = shard(10);
  std::mutex mutex;
  std::condition_variable all_there;
  int there = 0;
  const LoopbackServer server([&](const HttpRequest& request, HttpConnection& connection) {
    std::unique_lock lock(mutex);
    if (++there == 8) all_there.notify_all();
    EXPECT_TRUE(all_there.wait_for(lock, 10s, [&] { return there >= 8; }));
    lock.unlock();
    test::serve(request, connection, bytes);
  });
  std::vector<int> seen(24, 0);
  RemoteReader reader(server.url(), quick());
  reader.read_headers(urls(server, 24),
                      [&](size_t number, int64_t, std::string_view) { ++seen[number]; });
  EXPECT_EQ(seen, std::vector<int>(24, 1));
  EXPECT_EQ(server.most_at_once(), 8);
  EXPECT_EQ(reader.requests(), 24);
}

TEST(RemoteHeader, TheFirstBadFileInOrderIsReportedAndNoneBehindItIsBegun) {
  const std::string bytes = shard(10);
  const LoopbackServer server([&](const HttpRequest& request, HttpConnection& connection) {
    if (request.path < "/2") return test::serve(request, connection, bytes);
    if (request.path == "/2") std::this_thread::sleep_for(100ms);
    answer_status(connection, "404 Not Found");
  });
  RemoteReader reader(server.url(), quick());
  const std::string message = message_of(
      [&] { reader.read_headers(urls(server, 9), [](size_t, int64_t, std::string_view) {}); });
  EXPECT_TRUE(contains(message, server.url("/2: answered 404")));

  const LoopbackServer empty([](const HttpRequest&, HttpConnection& connection) {
    answer_status(connection, "404 Not Found");
  });
  RemoteReader other(empty.url(), quick());
  EXPECT_TRUE(contains(message_of([&] {
                         other.read_headers(urls(empty, 100),
                                            [](size_t, int64_t, std::string_view) {});
                       }),
                       empty.url("/0: answered 404")));
  EXPECT_LE(other.requests(), 16);
}

TEST(RemoteHeader, WhatTheReceiverThrowsIsThatFilesError) {
  const LoopbackServer server(file(shard(10)));
  RemoteReader reader(server.url(), quick());
  EXPECT_EQ(message_of([&] {
              reader.read_headers(urls(server, 20), [](size_t number, int64_t, std::string_view) {
                if (number >= 3) throw Error("bad ", number);
              });
            }),
            "bad 3");
}

TEST(RemoteHeader, AWholeFileIsReadOrMissingOrTooLong) {
  const LoopbackServer server([](const HttpRequest& request, HttpConnection& connection) {
    if (request.path == "/missing") return answer_status(connection, "404 Not Found");
    if (request.path == "/endless") return endless(http_head("200 OK", ""))(request, connection);
    test::serve(request, connection, "0123456789");
  });
  RemoteReader reader(server.url(), quick());
  EXPECT_EQ(reader.read_whole(server.url("/f"), 10), "0123456789");
  EXPECT_EQ(server.requests()[0].header("Range"), "");
  EXPECT_FALSE(reader.read_whole(server.url("/missing"), 10));
  EXPECT_EQ(message_of([&] { reader.read_whole(server.url("/f"), 9); }),
            server.url("/f: has 10 bytes, at most 9 are read of such a file"));
  EXPECT_EQ(message_of([&] { reader.read_whole(server.url("/endless"), 100'000); }),
            server.url("/endless: has more than 100000 bytes"));
  EXPECT_LT(server.bytes_sent(), 8 << 20);
}

}  // namespace
}  // namespace k3
