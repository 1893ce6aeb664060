#include "src/run/stop_signal.h"

#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace temper {
namespace {

volatile std::sig_atomic_t requested = 0;  // a signal handler can reach nothing else

void on_signal(int signal) {
  if (requested && signal != SIGUSR1) ::_exit(75);
  requested = 1;
}

}  // namespace

void install_stop_signals() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGTERM, SIGINT, SIGUSR1}) ::sigaction(signal, &action, nullptr);
}

bool stop_requested() { return requested != 0; }

}  // namespace temper
