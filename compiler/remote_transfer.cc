#include "compiler/remote_transfer.h"

#include <algorithm>

#include "schema/error.h"
#include "schema/printable.h"

namespace k3 {
namespace {

constexpr int64_t kMostHeadBytes = int64_t{64} << 10;
constexpr int64_t kMostUnwantedBytes = int64_t{64} << 10;

}  // namespace

RemoteTransfer::RemoteTransfer(const RemoteOptions& options) : handle_(curl_easy_init()) {
  K3_CHECK(handle_ != nullptr);
  const auto set = [this](CURLoption option, auto value) {
    K3_CHECK(curl_easy_setopt(handle_.get(), option, value) == CURLE_OK);
  };
  set(CURLOPT_PRIVATE, this);
  set(CURLOPT_ERRORBUFFER, message_.data());
  set(CURLOPT_HEADERFUNCTION, receive<&RemoteTransfer::take_head_line>);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_WRITEFUNCTION, receive<&RemoteTransfer::take_body>);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_USERAGENT, "k3c");
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(options.request_timeout.count()));
}

RemoteTransfer::~RemoteTransfer() {
  stop();
}

RemoteTransfer& RemoteTransfer::of(CURL* handle) {
  char* user = nullptr;
  curl_easy_getinfo(handle, CURLINFO_PRIVATE, &user);
  K3_CHECK(user != nullptr);
  return *reinterpret_cast<RemoteTransfer*>(user);
}

void RemoteTransfer::start(CURLM* multi, const Address& address, const std::string& token) {
  stop();
  address_ = address;
  job.bytes.resize(job.kept);
  head_ = HttpHead();
  head_complete_ = false;
  head_bytes_ = 0;
  wanted_ = false;
  expected_bytes_ = 0;
  unwanted_bytes_ = 0;
  refusal_ = nullptr;
  message_.front() = '\0';

  curl_slist* lines = curl_slist_append(nullptr, "Accept-Encoding: identity");
  if (!token.empty()) {
    lines = curl_slist_append(lines, ("Authorization: Bearer " + token).c_str());
  }
  CURL* handle = handle_.get();
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, lines);
  lines_.reset(lines);
  curl_easy_setopt(handle, CURLOPT_URL, address_.url.c_str());
  curl_easy_setopt(handle, CURLOPT_RANGE, job.range ? range_text(*job.range).c_str() : nullptr);
  // A proxy has no business between two programs of one machine; else the environment's holds.
  curl_easy_setopt(handle, CURLOPT_PROXY, address_.is_this_machine ? "" : nullptr);
  K3_CHECK(curl_multi_add_handle(multi, handle) == CURLM_OK);
  multi_ = multi;
  latest_byte_ = Clock::now();
}

void RemoteTransfer::stop() {
  if (multi_ != nullptr) curl_multi_remove_handle(multi_, handle_.get());
  multi_ = nullptr;
}

std::chrono::seconds RemoteTransfer::retry_after() const {
  curl_off_t seconds = 0;
  curl_easy_getinfo(handle_.get(), CURLINFO_RETRY_AFTER, &seconds);
  constexpr curl_off_t kYear = 31'536'000;
  return std::chrono::seconds(std::clamp<curl_off_t>(seconds, 0, kYear));
}

void RemoteTransfer::throw_if_refused() const {
  if (refusal_) std::rethrow_exception(refusal_);
}

std::string RemoteTransfer::curl_message(CURLcode code) const {
  return printable(message_.front() != '\0' ? message_.data() : curl_easy_strerror(code));
}

// libcurl's callback: runs `take` and turns what it throws into a refusal.
template <void (RemoteTransfer::*take)(std::string_view)>
size_t RemoteTransfer::receive(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<RemoteTransfer*>(user);
  transfer.latest_byte_ = Clock::now();
  const size_t bytes = size * count;
  bool enough = false;
  try {
    (transfer.*take)({data, bytes});
    enough = transfer.unwanted_bytes_ > kMostUnwantedBytes;
  } catch (...) {
    transfer.refusal_ = std::current_exception();
    enough = true;
  }
  return enough ? bytes + 1 : bytes;  // any number but `bytes` ends the transfer
}

void RemoteTransfer::take_head_line(std::string_view line) {
  head_bytes_ += std::ssize(line);
  if (head_bytes_ > kMostHeadBytes) {
    throw Error(job.url, ": the head of the answer has more than ", kMostHeadBytes, " bytes");
  }
  if (head_complete_) return;  // trailers decide nothing
  if (line.starts_with("HTTP/")) {
    long status = 0;
    curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
    head_ = HttpHead(static_cast<int>(status));
  } else if (line != "\r\n" && line != "\n") {
    head_.add_line(job.url, line);
  } else if (head_.status() >= 200) {  // below are notices before the answer
    head_complete_ = true;
    judge_head();
  }
}

// Sets wanted_ if the body is the file's; a head whose status says why it is not is left to
// remote_header.cc.
void RemoteTransfer::judge_head() {
  const int status = head_.status();
  if (head_.is_redirect() || head_.is_transient() || status == 401 || status == 403) return;
  if (job.range) {
    const ExpectedBody body = expect_range(job.url, head_, *job.range);
    const bool changed =
        job.kept > 0 && (body.file_bytes != job.file_bytes || head_.entity_tag() != job.entity_tag);
    if (changed) {
      throw Error(job.url, ": the file changed between two requests: it had ", job.file_bytes,
                  " bytes and ETag ", printable(job.entity_tag), ", now ", body.file_bytes, " and ",
                  printable(head_.entity_tag()));
    }
    job.file_bytes = body.file_bytes;
    job.entity_tag = head_.entity_tag();
    expected_bytes_ = body.bytes;
    job.bytes.reserve(job.kept + static_cast<size_t>(body.bytes));
  } else {
    job.missing = status == 404;
    if (job.missing) return;
    expect_whole(job.url, head_, job.limit_bytes);
    expected_bytes_ = head_.content_length().value_or(job.limit_bytes);
    job.bytes.reserve(static_cast<size_t>(head_.content_length().value_or(0)));
  }
  wanted_ = true;
}

void RemoteTransfer::take_body(std::string_view piece) {
  if (!wanted_) {
    unwanted_bytes_ += std::ssize(piece);
    return;
  }
  if (std::ssize(piece) > expected_bytes_ - body_bytes()) {
    if (!job.range) throw Error(job.url, ": has more than ", expected_bytes_, " bytes");
    throw Error(job.url, ": the body goes on behind the ", expected_bytes_,
                " bytes that were asked for");
  }
  job.bytes += piece;
}

}  // namespace k3
