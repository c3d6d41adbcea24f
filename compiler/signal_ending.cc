// A signal handler may call almost nothing: unlink, write and raise are allowed, and the paths and
// the line lie in plain arrays that are complete before a handler can run.
#include "compiler/signal_ending.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
constexpr size_t kMostFiles = 2;

std::array<std::array<char, PATH_MAX>, kMostFiles> paths_to_remove;
std::array<char, PATH_MAX + 200> line_to_write;
size_t line_bytes = 0;
std::array<struct sigaction, kSignals.size()> earlier_actions;
bool armed = false;

extern "C" void end_by_signal(int signal) {
  for (const auto& path : paths_to_remove) {
    if (path.front() != '\0') ::unlink(path.data());
  }
  // Nobody is left to be told when this fails.
  [[maybe_unused]] const auto put = ::write(STDERR_FILENO, line_to_write.data(), line_bytes);
  struct sigaction end {};
  end.sa_handler = SIG_DFL;
  ::sigaction(signal, &end, nullptr);
  ::raise(signal);
}

}  // namespace

SignalEnding::SignalEnding(const std::vector<std::string>& files_to_remove,
                           const std::string& line) {
  K3_CHECK(!armed && files_to_remove.size() <= kMostFiles && line.size() <= line_to_write.size());
  for (auto& path : paths_to_remove) path.front() = '\0';
  for (size_t i = 0; i < files_to_remove.size(); ++i) {
    const std::string& path = files_to_remove[i];
    if (path.size() >= paths_to_remove[i].size()) throw Error(path, ": path is too long");
    path.copy(paths_to_remove[i].data(), path.size());
    paths_to_remove[i][path.size()] = '\0';
  }
  line.copy(line_to_write.data(), line.size());
  line_bytes = line.size();
  armed = true;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = end_by_signal;
    ::sigaction(kSignals[i], nullptr, &earlier_actions[i]);
    // What was ignored (nohup) stays ignored.
    if (earlier_actions[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

SignalEnding::~SignalEnding() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &earlier_actions[i], nullptr);
  }
  armed = false;
}

}  // namespace k3
