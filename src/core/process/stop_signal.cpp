#include "src/core/process/stop_signal.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace temper {
namespace {

struct StopSignal {
  int number;
  const char* name;
};
constexpr StopSignal kSignals[] = {
    {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"}};

// A signal handler can reach nothing else. Two threads may handle two signals at the same time.
std::atomic<int> requested = 0;  // the signal's number
std::atomic<bool> asks = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  if (requested.exchange(signal) != 0 || !asks) ::_exit(128 + signal);
}

}  // namespace

HeldStopSignals::HeldStopSignals() {
  sigset_t held;
  sigemptyset(&held);
  for (const StopSignal& s : kSignals) sigaddset(&held, s.number);
  ::pthread_sigmask(SIG_BLOCK, &held, &before_);
}

HeldStopSignals::~HeldStopSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const StopSignal& s : kSignals) ::sigaction(s.number, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

void signals_ask() { asks = true; }

bool stop_requested() { return requested != 0; }

const char* stop_signal_name() {
  for (const StopSignal& s : kSignals)
    if (s.number == requested) return s.name;
  return "";
}

bool ended_by_launcher() { return requested == SIGTERM || requested == SIGINT; }

}  // namespace temper
