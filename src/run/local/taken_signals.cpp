#include "src/run/local/taken_signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "src/core/check.h"
#include "src/core/process/stop_signal.h"

namespace temper {
namespace {

std::atomic<int> to_reader = -1;  // a signal handler can reach nothing else
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  const int before = errno;
  const auto byte = static_cast<unsigned char>(number);
  // Full: so many have come that one more says nothing.
  [[maybe_unused]] const ssize_t told = ::write(to_reader, &byte, 1);
  errno = before;
}

}  // namespace

TakenSignals::TakenSignals() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    fail(Exit::environment, {.what = "signals cannot be waited for",
                             .where = "--local",
                             .why = std::strerror(errno),
                             .fix = "raise the limit on files (ulimit -n)"});
  come_ = ends[0];
  to_reader = ends[1];
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGCHLD, SIGTSTP}) ::sigaction(signal, &action, nullptr);
  if (!ignores_hangup()) ::sigaction(SIGHUP, &action, nullptr);
}

std::optional<int> TakenSignals::next() const {
  unsigned char byte = 0;
  if (::read(come_, &byte, 1) != 1) return std::nullopt;
  return byte;
}

}  // namespace temper
