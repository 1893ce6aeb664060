#include "src/core/process/stop_signal.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace temper {
namespace {

// A signal handler can reach nothing else. Two threads may handle two signals at the same time.
std::atomic<bool> requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  const bool again = requested.exchange(true);
  if (again && signal != SIGUSR1) ::_exit(75);
}

}  // namespace

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGTERM, SIGINT, SIGUSR1}) ::sigaction(signal, &action, nullptr);
}

bool stop_requested() { return requested; }

}  // namespace temper
