// A signal handler may call almost nothing: unlink and raise are allowed, and the path lies in a
// plain array that is complete before a handler can run.
#include "compiler/remove_on_signal.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>

#include "schema/error.h"

namespace k3 {
namespace {

constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};

std::array<char, PATH_MAX> path_to_remove;
std::array<struct sigaction, kSignals.size()> earlier_actions;
bool armed = false;

extern "C" void remove_and_end(int signal) {
  ::unlink(path_to_remove.data());
  struct sigaction end {};
  end.sa_handler = SIG_DFL;
  ::sigaction(signal, &end, nullptr);
  ::raise(signal);
}

}  // namespace

RemoveOnSignal::RemoveOnSignal(const std::string& path) {
  K3_CHECK(!armed);
  if (path.size() >= path_to_remove.size()) throw Error(path, ": path is too long");
  path.copy(path_to_remove.data(), path.size());
  path_to_remove[path.size()] = '\0';
  armed = true;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = remove_and_end;
    ::sigaction(kSignals[i], nullptr, &earlier_actions[i]);
    // What was ignored (nohup) stays ignored.
    if (earlier_actions[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

RemoveOnSignal::~RemoveOnSignal() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &earlier_actions[i], nullptr);
  }
  armed = false;
}

}  // namespace k3
