#include "src/run/local/terminal_state.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace temper {

TerminalState::TerminalState() {
  termios now{};
  if (::tcgetattr(STDERR_FILENO, &now) == 0) before_ = now;
}

TerminalState::~TerminalState() {
  termios now{};
  if (!before_ || ::tcgetattr(STDERR_FILENO, &now) != 0 || std::memcmp(&now, &*before_, sizeof now) == 0)
    return;
  sigset_t stop, mask;  // in the background this would stop the process
  sigemptyset(&stop);
  sigaddset(&stop, SIGTTOU);
  ::sigprocmask(SIG_BLOCK, &stop, &mask);
  ::tcsetattr(STDERR_FILENO, TCSADRAIN, &*before_);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
}

void TerminalState::clear_line() const {
  static constexpr char kClear[] = "\r\033[K";
  if (before_) [[maybe_unused]]
    const ssize_t put = ::write(STDERR_FILENO, kClear, sizeof kClear - 1);
}

}  // namespace temper
