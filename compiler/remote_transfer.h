// One file's request and its response on a libcurl handle. Part of remote_header.cc, which says by
// which rules, and holds the loop that runs several of these.
#pragma once

#include <curl/curl.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/http_response.h"
#include "compiler/remote_address.h"
#include "compiler/remote_header.h"

namespace k3 {

// What is asked for, over all its requests, and what has come.
struct RemoteJob {
  size_t number = 0;
  std::string url;                 // named in messages
  std::optional<ByteRange> range;  // none: the whole file
  int64_t limit_bytes = 0;         // of a whole file
  std::string bytes;               // of the file, from its first on
  size_t kept = 0;                 // how many of them earlier requests brought
  int64_t file_bytes = 0;          // by Content-Range; 0 before the first answer
  std::string entity_tag;
  bool missing = false;  // 404 to a whole file
};

class RemoteTransfer {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RemoteTransfer(const RemoteOptions& options);
  ~RemoteTransfer();
  RemoteTransfer(const RemoteTransfer&) = delete;  // libcurl holds its address
  RemoteTransfer& operator=(const RemoteTransfer&) = delete;

  // Which transfer a handle of libcurl belongs to.
  static RemoteTransfer& of(CURL* handle);

  // Sends the job's request to `address` once the handle runs in `multi`, with `token` if that is
  // not empty, and forgets the response before.
  void start(CURLM* multi, const Address& address, const std::string& token);
  // Ends the request, complete or not; what was received can still be asked for.
  void stop();
  bool running() const { return multi_ != nullptr; }

  const Address& address() const { return address_; }
  const HttpHead& head() const { return head_; }
  bool head_complete() const { return head_complete_; }
  bool body_wanted() const { return wanted_; }
  int64_t body_bytes() const { return static_cast<int64_t>(job.bytes.size() - job.kept); }
  int64_t expected_bytes() const { return expected_bytes_; }  // of a wanted body
  Clock::time_point latest_byte() const { return latest_byte_; }
  std::chrono::seconds retry_after() const;  // 0 if the server asks for no wait
  // Throws the Error for which the response was refused while it came in, if it was.
  void throw_if_refused() const;
  // What libcurl says of `code`.
  std::string curl_message(CURLcode code) const;

  RemoteJob job;

 private:
  template <void (RemoteTransfer::*take)(std::string_view)>
  static size_t receive(char* data, size_t size, size_t count, void* user);
  void take_head_line(std::string_view line);
  void judge_head();
  void take_body(std::string_view piece);

  struct FreeHandle {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  };
  struct FreeList {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };

  std::unique_ptr<CURL, FreeHandle> handle_;
  std::unique_ptr<curl_slist, FreeList> lines_;  // of the request's head
  std::array<char, CURL_ERROR_SIZE> message_{};
  CURLM* multi_ = nullptr;  // while running
  Address address_;

  HttpHead head_;
  bool head_complete_ = false;
  int64_t head_bytes_ = 0;
  bool wanted_ = false;
  int64_t expected_bytes_ = 0;
  int64_t unwanted_bytes_ = 0;
  Clock::time_point latest_byte_;
  std::exception_ptr refusal_;  // from a callback, which may not throw through C
};

}  // namespace k3
