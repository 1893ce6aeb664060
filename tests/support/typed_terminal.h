#pragma once
// A program on a terminal of its own, typed to and read as a person does it.

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

namespace temper {

class TypedTerminal {
 public:
  /// Runs a shell command in a folder. What is typed is not echoed.
  TypedTerminal(const std::string& folder, const std::string& command) {
    termios quiet{};
    ::cfmakeraw(&quiet);
    quiet.c_iflag = ICRNL;
    quiet.c_oflag = 0;
    quiet.c_lflag = ICANON | ISIG;
    quiet.c_cc[VINTR] = 3, quiet.c_cc[VEOF] = 4;
    winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = ::forkpty(&terminal_, nullptr, &quiet, &size);
    if (child_ != 0) return;
    const std::string line = "cd " + folder + " && exec " + command;
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  ~TypedTerminal() {
    if (child_ > 0) ::kill(child_, SIGKILL), ::waitpid(child_, nullptr, 0);
    ::close(terminal_);
  }
  TypedTerminal(const TypedTerminal&) = delete;
  TypedTerminal& operator=(const TypedTerminal&) = delete;

  void type(const std::string& keys) const {
    if (::write(terminal_, keys.data(), keys.size()) < 0) return;
  }
  /// All that is shown from the last call on up to `text`, which comes with it; what came so far where it
  /// does not come.
  std::string read_to(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (shown_.find(text) == std::string::npos && std::chrono::steady_clock::now() < end)
      if (!read_some()) break;
    const size_t at = shown_.find(text);
    const size_t length = at == std::string::npos ? shown_.size() : at + text.size();
    const std::string found = shown_.substr(0, length);
    shown_.erase(0, length);
    return found;
  }
  /// Waits for the end of the program. Its exit code.
  int exit_code() {
    while (read_some()) {
    }
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool read_some() {
    char bytes[4096];
    pollfd waits{.fd = terminal_, .events = POLLIN, .revents = 0};
    if (::poll(&waits, 1, 60000) <= 0) return false;
    const ssize_t n = ::read(terminal_, bytes, sizeof bytes);
    if (n > 0) shown_.append(bytes, static_cast<size_t>(n));
    return n > 0;
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string shown_;
};

}  // namespace temper
