// Reads headers of safetensors files, and small files whole, from a web server.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace k3 {

// A longer header is not fetched, for each transfer may hold this much. K3's 96 headers have 76 MB
// together, 1.3 million tensors in one file have 126 MB.
inline constexpr int64_t kLargestRemoteHeader = int64_t{128} << 20;

struct RemoteOptions {
  using Milliseconds = std::chrono::milliseconds;

  std::string token;  // sent as a bearer token to the named host alone; empty: none
  // What the first request for a header asks for. K3's largest headers have 0.82 MB, so one request
  // brings them; a longer one takes a second request for exactly the rest.
  int64_t first_bytes = int64_t{1} << 20;
  int64_t transfers = 8;              // at once
  int64_t tries = 4;                  // of one request, the first included
  Milliseconds first_wait{500};       // before the second try; doubles from try to try
  Milliseconds longest_wait{60'000};  // a server that asks for more is not waited for
  Milliseconds connect_timeout{10'000};
  Milliseconds stall_timeout{30'000};     // without a byte
  Milliseconds request_timeout{900'000};  // one request, whatever comes
};

// Reads what lies under one URL. Every message begins with the URL of the file it is about; none
// holds the token, or of a URL that the server redirected to more than scheme and host.
class RemoteReader {
 public:
  // Names the host of `url` as the one that may see the token. Sends nothing. Throws Error when the
  // URL breaks a rule of remote_address.h, or the token cannot stand in a header.
  RemoteReader(const std::string& url, RemoteOptions options);
  ~RemoteReader();
  RemoteReader(const RemoteReader&) = delete;
  RemoteReader& operator=(const RemoteReader&) = delete;

  // The whole file, or nothing when the server says 404. Throws Error for any other answer than
  // 200 and when the file has more than `limit_bytes`.
  std::optional<std::string> read_whole(const std::string& url, int64_t limit_bytes);

  // Reads the header of each of the safetensors files `urls` with at most two requests a file,
  // redirects and repeated tries not counted, and calls `received`, from this thread and in the
  // order of arrival, with the file's number, its length and its header's JSON, which is valid
  // during the call alone. What `received` throws counts as that file's error. Of several files
  // with errors the first in the order of `urls` is reported; none behind it is begun any more.
  using Received = std::function<void(size_t number, int64_t file_bytes, std::string_view json)>;
  void read_headers(const std::vector<std::string>& urls, const Received& received);

  int64_t requests() const;  // sent so far, redirects and repeated tries included

 private:
  class Transfers;
  std::unique_ptr<Transfers> transfers_;
};

}  // namespace k3
