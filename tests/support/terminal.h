#pragma once
// A command with a terminal in the place of stderr, as a person sees it.

#include <pty.h>

#include <cstdlib>
#include <string>

#include "tests/support/program.h"

namespace temper {

struct Seen {
  int code = -1;
  std::string stderr_bytes;  // with the control sequences that went to the terminal
};

/// Runs a shell command in the program's folder; stdout goes to output.log.
inline Seen run_on_terminal(const Program& program, const std::string& command) {
  int terminal = -1, other = -1;
  Seen seen;
  winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  if (::openpty(&terminal, &other, nullptr, nullptr, &size) != 0) return seen;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(other, STDERR_FILENO);
    ::close(terminal);
    const std::string line =
        fmt::format("cd {} && exec {} > output.log < /dev/null", program.folder().path(), command);
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(other);
  char bytes[4096];
  for (ssize_t n; (n = ::read(terminal, bytes, sizeof bytes)) > 0;) seen.stderr_bytes.append(bytes, n);
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  seen.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return seen;
}

/// What stood on the lines of the terminal, one after the other: a line that was written over counts too.
inline std::vector<std::string> lines_seen(const std::string& bytes) {
  std::vector<std::string> lines{""};
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '\r' || bytes[i] == '\n') {
      if (!lines.back().empty()) lines.emplace_back();
    } else if (bytes.compare(i, 3, "\033[K") == 0) {
      i += 2;
    } else {
      lines.back() += bytes[i];
    }
  }
  return lines;
}

}  // namespace temper
