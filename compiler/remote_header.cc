// Whatever stands between us and a file may misbehave: the server, a cache, a proxy, a redirect.
// The rules, which hold for every request:
//
// - The head decides whether the body is wanted (http_response.h), and reading a wanted body stops
//   at the byte that was promised last. What is not wanted, the page that comes with an error or a
//   redirect, is read up to 64 KiB, which keeps the connection, and cut off behind that.
// - Redirects are followed here and not by libcurl, because each step is checked by the rules of
//   remote_address.h, goes out with the same Range, and with the token only to the host that was
//   named.
// - Only what another try can mend is tried again: 429, 5xx, a connection that was cut or fell
//   silent. Waits double from try to try and have no random part: at most eight transfers run, so
//   there is no herd to scatter, and a failure is the same each time it is shown.
//
// HTTP/1.1 alone: in HTTP/2 all transfers share a window that may hold megabytes nobody asked for,
// and after cutting one off, what is under way still has to be taken and thrown away.
#include "compiler/remote_header.h"

#include <curl/curl.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "compiler/http_response.h"
#include "compiler/remote_address.h"
#include "compiler/remote_transfer.h"
#include "schema/error.h"
#include "schema/safetensors.h"

namespace k3 {
namespace {

using Clock = RemoteTransfer::Clock;
using Milliseconds = RemoteOptions::Milliseconds;

constexpr int64_t kMostRedirects = 5;

void initialise_curl() {
  struct Library {
    Library() { K3_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); }
    ~Library() { curl_global_cleanup(); }
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
  };
  static const Library library;
}

void check_token(const std::string& token) {
  for (const char c : token) {
    if (c > 0x20 && c < 0x7f) continue;
    throw Error("HF_TOKEN: holds a space, a control character or a byte that is not ASCII");
  }
}

std::string seconds_text(Milliseconds time) {
  std::string text = std::to_string(time.count() / 1000);
  if (const auto rest = time.count() % 1000; rest != 0) {
    text += '.' + std::to_string(1000 + rest).substr(1);
  }
  return text + " s";
}

// "4 of 1024 bytes"; the second number only where the head promised one.
std::string progress_text(const RemoteTransfer& transfer) {
  std::string text = std::to_string(transfer.body_bytes());
  if (transfer.job.range || transfer.head().content_length()) {
    text.append(" of ").append(std::to_string(transfer.expected_bytes()));
  }
  return text + " bytes";
}

}  // namespace

// The loop that runs jobs, a fixed number at once.
class RemoteReader::Transfers {
 public:
  Transfers(const std::string& url, RemoteOptions options) : options_(std::move(options)) {
    K3_CHECK(options_.transfers > 0 && options_.tries > 0 &&
             options_.first_bytes > kSafetensorsPrefixBytes);
    check_token(options_.token);
    initialise_curl();
    named_ = parse_address(url);
    multi_.reset(curl_multi_init());
    K3_CHECK(multi_ != nullptr);
    for (int64_t i = 0; i < options_.transfers; ++i) slots_.emplace_back(options_);
  }

  const RemoteOptions& options() const { return options_; }
  int64_t requests() const { return requests_; }

  // Runs the jobs that `make` returns for 0 .. count - 1, begun in this order. `complete` gets each
  // with its bytes; it returns true when it has changed the range and wants that answered too.
  // Throws the error of the first job that has one, in whatever order they arose.
  template <class Make, class Complete>
  void run(size_t count, const Make& make, const Complete& complete) {
    size_t next = 0;
    size_t end = count;  // what lies behind the first error is not wanted any more
    std::exception_ptr error;
    const auto guarded = [&](Slot& slot, const auto& step) {
      try {
        step();
      } catch (...) {
        slot.stop();
        if (slot.transfer.job.number >= end) return;
        end = slot.transfer.job.number;
        error = std::current_exception();
      }
    };
    while (true) {
      bool busy = false;
      for (Slot& slot : slots_) {
        if (slot.busy() && slot.transfer.job.number >= end) slot.stop();
        if (!slot.busy() && next < end) {
          slot.transfer.job = make(next++);
          guarded(slot, [&] { begin(slot); });
        }
        guarded(slot, [&] { look_at_clock(slot); });
        busy |= slot.busy();
      }
      if (!busy && next >= end) break;
      const bool any_done = perform([&](Slot& slot, CURLcode code) {
        guarded(slot, [&] {
          slot.stop();
          if (!settle(slot, code)) return;
          if (complete(slot.transfer.job)) return begin(slot);
          slot.transfer.job.bytes = {};
        });
      });
      if (!any_done) curl_multi_poll(multi_.get(), nullptr, 0, wait_milliseconds(), nullptr);
    }
    if (error) rethrow(error);
  }

 private:
  struct Slot {
    explicit Slot(const RemoteOptions& options) : transfer(options) {}

    bool busy() const { return transfer.running() || next_try; }
    void stop() {
      transfer.stop();
      next_try.reset();
    }

    RemoteTransfer transfer;
    int64_t tries = 0;  // of the job's present request
    int64_t redirects = 0;
    std::optional<Clock::time_point> next_try;  // while waiting for it
  };
  struct FreeMulti {
    void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
  };

  // Moves all transfers on; true if `ended` was called for any.
  template <class Ended>
  bool perform(const Ended& ended) {
    int running = 0;
    K3_CHECK(curl_multi_perform(multi_.get(), &running) == CURLM_OK);
    bool any = false;
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      any = true;
      const RemoteTransfer* transfer = &RemoteTransfer::of(message->easy_handle);
      const auto slot = std::find_if(slots_.begin(), slots_.end(), [transfer](const Slot& other) {
        return &other.transfer == transfer;
      });
      K3_CHECK(slot != slots_.end());
      ended(*slot, message->data.result);
    }
    return any;
  }

  // The first try of the job's next request.
  void begin(Slot& slot) {
    slot.tries = 0;
    try_again(slot);
  }

  // From the start: what a redirect led to may have expired.
  void try_again(Slot& slot) {
    slot.next_try.reset();
    ++slot.tries;
    slot.redirects = 0;
    send(slot, parse_address(slot.transfer.job.url));
  }

  void send(Slot& slot, const Address& address) {
    const bool named = address.origin == named_.origin;
    slot.transfer.start(multi_.get(), address, named ? options_.token : "");
    ++requests_;
  }

  void look_at_clock(Slot& slot) {
    const Clock::time_point now = Clock::now();
    if (slot.next_try && now >= *slot.next_try) {
      try_again(slot);
    } else if (slot.transfer.running() &&
               now >= slot.transfer.latest_byte() + options_.stall_timeout) {
      slot.stop();
      retry(slot, "timeout, not a byte came for " + seconds_text(options_.stall_timeout), {});
    }
  }

  // Until the clock has to be looked at, at most a second.
  int wait_milliseconds() const {
    Clock::time_point until = Clock::now() + std::chrono::seconds(1);
    for (const Slot& slot : slots_) {
      if (slot.next_try) until = std::min(until, *slot.next_try);
      if (slot.transfer.running()) {
        until = std::min(until, slot.transfer.latest_byte() + options_.stall_timeout);
      }
    }
    const auto wait = std::chrono::ceil<Milliseconds>(until - Clock::now());
    return static_cast<int>(std::max(wait, Milliseconds(0)).count());
  }

  // Lets the slot wait for the next try of its request. Throws Error when there is none.
  void retry(Slot& slot, const std::string& fault, Milliseconds asked_wait) {
    const std::string& url = slot.transfer.job.url;
    if (asked_wait > options_.longest_wait) {
      throw Error(url, ": ", fault, " and asks to wait ", seconds_text(asked_wait), ", at most ",
                  seconds_text(options_.longest_wait), " are waited");
    }
    if (slot.tries >= options_.tries) {
      throw Error(url, ": ", fault, ", at try ", slot.tries, " of ", options_.tries);
    }
    const Milliseconds wait = options_.first_wait * (int64_t{1} << (slot.tries - 1));
    slot.next_try = Clock::now() + std::max(asked_wait, std::min(wait, options_.longest_wait));
  }

  // Decides what becomes of a request that has ended. True: the job has what it asked for.
  bool settle(Slot& slot, CURLcode code) {
    const RemoteTransfer& transfer = slot.transfer;
    transfer.throw_if_refused();
    if (transfer.head_complete() && !transfer.body_wanted()) return settle_by_status(slot);

    const bool cut = code == CURLE_PARTIAL_FILE || code == CURLE_GOT_NOTHING ||
                     code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR;
    const bool short_of_range =
        code == CURLE_OK && transfer.job.range && transfer.body_bytes() < transfer.expected_bytes();
    if (cut || short_of_range) {
      retry(slot,
            transfer.head_complete() ? "the body was cut off after " + progress_text(transfer)
                                     : "the connection was cut before an answer",
            {});
      return false;
    }
    if (code == CURLE_OPERATION_TIMEDOUT && transfer.head_complete()) {
      throw Error(transfer.job.url, ": timeout, after ", seconds_text(options_.request_timeout),
                  " there are ", progress_text(transfer));
    }
    if (code != CURLE_OK) throw Error(transfer.job.url, ": ", transfer.curl_message(code));
    return true;
  }

  bool settle_by_status(Slot& slot) {
    const RemoteJob& job = slot.transfer.job;
    const HttpHead& head = slot.transfer.head();
    const std::string fault = "answered " + std::to_string(head.status());
    if (job.missing) return true;
    if (head.is_redirect()) {
      follow(slot);
    } else if (head.is_transient()) {
      retry(slot, fault, slot.transfer.retry_after());
    } else {
      throw Error(job.url, ": ", fault, ": no access ",
                  options_.token.empty() ? "without a token; HF_TOKEN is not set"
                                         : "with the token in HF_TOKEN");
    }
    return false;
  }

  void follow(Slot& slot) {
    const std::string& url = slot.transfer.job.url;
    const HttpHead& head = slot.transfer.head();
    if (!head.location()) throw Error(url, ": answered ", head.status(), " without a Location");
    if (++slot.redirects > kMostRedirects) {
      throw Error(url, ": redirected more than ", kMostRedirects, " times");
    }
    send(slot, redirected(url, slot.transfer.address(), *head.location()));
  }

  // A server that was sent the token may have put it into anything that a message quotes.
  [[noreturn]] void rethrow(const std::exception_ptr& error) const {
    const std::string& token = options_.token;
    try {
      std::rethrow_exception(error);
    } catch (const Error& plain) {
      std::string message = plain.what();
      size_t at = token.empty() ? std::string::npos : message.find(token);
      if (at == std::string::npos) throw;
      for (; at != std::string::npos; at = message.find(token))
        message.replace(at, token.size(), "");
      throw Error(message);
    }
  }

  RemoteOptions options_;
  Address named_;
  std::unique_ptr<CURLM, FreeMulti> multi_;
  std::deque<Slot> slots_;
  int64_t requests_ = 0;
};

RemoteReader::RemoteReader(const std::string& url, RemoteOptions options)
    : transfers_(std::make_unique<Transfers>(url, std::move(options))) {}
RemoteReader::~RemoteReader() = default;

int64_t RemoteReader::requests() const {
  return transfers_->requests();
}

std::optional<std::string> RemoteReader::read_whole(const std::string& url, int64_t limit_bytes) {
  std::optional<std::string> bytes;
  const auto make = [&](size_t number) {
    RemoteJob job;
    job.number = number;
    job.url = url;
    job.limit_bytes = limit_bytes;
    return job;
  };
  transfers_->run(1, make, [&bytes](RemoteJob& job) {
    if (!job.missing) bytes = std::move(job.bytes);
    return false;
  });
  return bytes;
}

void RemoteReader::read_headers(const std::vector<std::string>& urls, const Received& received) {
  const auto make = [&](size_t number) {
    RemoteJob job;
    job.number = number;
    job.url = urls[number];
    job.range = ByteRange{0, transfers_->options().first_bytes - 1};
    return job;
  };
  transfers_->run(urls.size(), make, [&received](RemoteJob& job) {
    const std::string_view bytes = job.bytes;
    if (std::ssize(bytes) < kSafetensorsPrefixBytes) {
      throw Error(job.url, ": has ", job.file_bytes, " bytes, a safetensors file has at least 10");
    }
    const auto prefix = std::as_bytes(std::span(bytes)).first<kSafetensorsPrefixBytes>();
    const int64_t json_bytes = safetensors_header_bytes(job.url, prefix, job.file_bytes);
    if (json_bytes > kLargestRemoteHeader) {
      throw Error(job.url, ": the header has ", json_bytes, " bytes, at most ",
                  kLargestRemoteHeader, " are fetched");
    }
    const int64_t end = kSafetensorsPrefixBytes + json_bytes;
    if (std::ssize(bytes) >= end) {
      received(job.number, job.file_bytes,
               bytes.substr(kSafetensorsPrefixBytes, static_cast<size_t>(json_bytes)));
      return false;
    }
    // Some other file may begin with a number that passes for a length: look before asking again.
    if (bytes[kSafetensorsPrefixBytes] != '{') {
      throw Error(job.url, ": the header does not start with '{'");
    }
    job.kept = bytes.size();
    job.range = ByteRange{std::ssize(bytes), end - 1};
    return true;
  });
}

}  // namespace k3
