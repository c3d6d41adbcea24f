// Progress of long work, on stderr: a bar with rate and time left where a person watches, plain
// lines where a file does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace k3 {

class Progress {
 public:
  enum class Style : uint8_t { kQuiet, kLines, kBar };

  explicit Progress(Style style) : style_(style) {}

  // kQuiet when told so, else by whether stderr is a terminal.
  static Style style_for_stderr(bool quiet);

  // One line of its own.
  void line(std::string_view text);

  // Starts a piece of work of `total_bytes`; advance() is thread-safe; finish() ends it with a line
  // that says how long it took and how fast it was.
  void start(std::string_view what, int64_t total_bytes);
  void advance(int64_t bytes);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(Clock::time_point now);

  Style style_;
  std::string what_;
  int64_t total_bytes_ = 0;
  std::atomic<int64_t> done_bytes_ = 0;
  Clock::time_point started_;
  std::mutex drawing_;
  Clock::time_point next_drawing_;
};

// "17.5 MB", "1.56 TB": decimal units, three figures.
std::string format_bytes(int64_t bytes);

// "4.2 s", "3 min 20 s", "2 h 5 min".
std::string format_seconds(double seconds);

}  // namespace k3
