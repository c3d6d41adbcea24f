// How long something took.
#pragma once

#include <chrono>

namespace k3 {

class Stopwatch {
 public:
  // Since it was made.
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Adds the seconds it lives to a sum.
class ScopedSeconds {
 public:
  explicit ScopedSeconds(double& sum) : sum_(sum) {}
  ~ScopedSeconds() { sum_ += watch_.seconds(); }
  ScopedSeconds(const ScopedSeconds&) = delete;
  ScopedSeconds& operator=(const ScopedSeconds&) = delete;

 private:
  double& sum_;
  Stopwatch watch_;
};

}  // namespace k3
