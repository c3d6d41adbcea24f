// A web server on a port of this machine, for one test. It answers what its handler writes, right
// or wrong, and counts.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace k3::test {

struct HttpRequest {
  std::string path;  // "/a"
  std::string head;  // all lines

  // The text behind "NAME: ", empty if there is no such line.
  std::string header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
  std::optional<std::pair<int64_t, int64_t>> range() const {
    int64_t first = 0;
    int64_t last = 0;
    if (std::sscanf(header("Range").c_str(), "bytes=%ld-%ld", &first, &last) != 2) return {};
    return std::pair(first, last);
  }
};

class HttpConnection {
 public:
  HttpConnection(int socket, std::atomic<int64_t>& sent) : socket_(socket), sent_(sent) {}

  // False when the other side has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent_ += n;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // `bytes` of a file from `offset` on.
  void send_file(int descriptor, off_t offset, int64_t bytes) {
    while (bytes > 0) {
      const ssize_t n = ::sendfile(socket_, descriptor, &offset, static_cast<size_t>(bytes));
      if (n <= 0) return;
      sent_ += n;
      bytes -= n;
    }
  }
  // Ends the connection after this answer.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }

 private:
  int socket_;
  std::atomic<int64_t>& sent_;
  bool closed_ = false;
};

class LoopbackServer {
 public:
  using Handler = std::function<void(const HttpRequest&, HttpConnection&)>;

  explicit LoopbackServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, any, length), 0);
    EXPECT_EQ(::listen(listener_, 128), 0);
    EXPECT_EQ(::getsockname(listener_, any, &length), 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~LoopbackServer() {
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int socket : sockets_) ::close(socket);
    ::close(listener_);
  }
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  std::string url(const std::string& path = "") const {
    return std::string("http://127.0.0.1:") + std::to_string(port_) + path;
  }
  std::vector<HttpRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  // What the client has let through and what both sockets' buffers hold.
  int64_t bytes_sent() const { return sent_; }
  int64_t most_at_once() const { return most_at_once_; }

 private:
  void accept_all() {
    while (true) {
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) return;
      const int on = 1;  // an answer in two pieces is not held back
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      threads_.emplace_back([this, socket] { answer_all(socket); });
    }
  }

  void answer_all(int socket) {
    HttpConnection connection(socket, sent_);
    std::string received;
    while (!connection.closed()) {
      const size_t end = received.find("\r\n\r\n");
      if (end == std::string::npos) {
        char piece[4096];
        const ssize_t n = ::recv(socket, piece, sizeof(piece), 0);
        if (n <= 0) break;
        received.append(piece, static_cast<size_t>(n));
        continue;
      }
      HttpRequest request;
      request.head = received.substr(0, end + 2);
      received.erase(0, end + 4);
      const size_t path = request.head.find(' ') + 1;
      request.path = request.head.substr(path, request.head.find(' ', path) - path);
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
        most_at_once_ = std::max<int64_t>(most_at_once_, ++at_once_);
      }
      handler_(request, connection);
      const std::lock_guard lock(mutex_);
      --at_once_;
    }
    ::shutdown(socket, SHUT_RDWR);
  }

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::thread acceptor_;
  std::atomic<int64_t> sent_ = 0;
  std::atomic<int64_t> most_at_once_ = 0;
  mutable std::mutex mutex_;
  int64_t at_once_ = 0;
  std::vector<HttpRequest> requests_;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
};

// A response head; `lines` end in \r\n each.
inline std::string http_head(const std::string& status, const std::string& lines) {
  return "HTTP/1.1 " + status + "\r\n" + lines + "\r\n";
}

inline void answer_status(HttpConnection& connection, const std::string& status,
                          const std::string& lines = "") {
  connection.send(http_head(status, lines + "Content-Length: 5\r\n") + "sorry");
}

inline std::string content_range(int64_t first, int64_t last, int64_t length) {
  return std::string("Content-Range: bytes ") + std::to_string(first) + "-" + std::to_string(last) +
         "/" + std::to_string(length) + "\r\n";
}

inline std::string content_length(int64_t bytes) {
  return std::string("Content-Length: ") + std::to_string(bytes) + "\r\n";
}

// What a right server says to a request for a file of `length` bytes; sets first and last to the
// part that follows.
inline std::string right_head(const HttpRequest& request, int64_t length, int64_t& first,
                              int64_t& last) {
  first = 0;
  last = length - 1;
  const auto range = request.range();
  if (!range) return http_head("200 OK", content_length(length));
  first = range->first;
  last = std::min(range->second, length - 1);
  if (first > last) {
    last = first - 1;
    return http_head("416 Range Not Satisfiable", std::string("Content-Range: bytes */") +
                                                      std::to_string(length) + "\r\n" +
                                                      content_length(0));
  }
  return http_head("206 Partial Content",
                   content_range(first, last, length) + content_length(last - first + 1));
}

// A file from memory.
inline void serve(const HttpRequest& request, HttpConnection& connection, std::string_view file) {
  int64_t first = 0;
  int64_t last = 0;
  connection.send(right_head(request, std::ssize(file), first, last));
  connection.send(file.substr(std::min(static_cast<size_t>(first), file.size()),
                              static_cast<size_t>(last - first + 1)));
}

// A file of `folder`, or 404.
inline void serve_from(const std::string& folder, const HttpRequest& request,
                       HttpConnection& connection) {
  const int descriptor = ::open((folder + request.path).c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    return answer_status(connection, "404 Not Found");
  }
  int64_t first = 0;
  int64_t last = 0;
  connection.send(right_head(request, status.st_size, first, last));
  connection.send_file(descriptor, first, last - first + 1);
  ::close(descriptor);
}

}  // namespace k3::test
