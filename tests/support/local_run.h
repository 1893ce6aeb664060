#pragma once
// A command with `--local N` as a person starts it, on a terminal of its own, or as a script does, into a
// pipe. All that it prints is kept, and what it leaves running is found.

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "src/core/stopwatch.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"

namespace temper {

class LocalRun {
 public:
  enum class Where { terminal, pipe };

  /// A shell command in the program's folder, whose temporary folder is tmp/ there.
  LocalRun(const Program& program, const std::string& command, Where where) {
    static std::atomic<int> count = 0;
    mark_ = fmt::format("TEMPER_TEST_JOB=local-{}-{}", ::getpid(), ++count);
    make_directories(program.path("tmp"));
    const std::string line = fmt::format("cd {0} && export {1} TMPDIR={0}/tmp && exec {2}",
                                         program.folder().path(), mark_, command);
    int other = -1;
    open(where, other);
    pid_ = ::fork();
    if (pid_ == 0) become(line, other);
    if (where == Where::pipe)
      ::close(other);
    else
      terminal_ = other;
    reader_ = std::thread([this] { read_all(); });
  }
  ~LocalRun() {
    if (!ended()) ::kill(pid_, SIGKILL);
    for (const pid_t process : processes()) ::kill(process, SIGKILL);
    if (!ended()) ::waitpid(pid_, &status_, 0);
    finish_reading();
    if (terminal_ >= 0) ::close(terminal_);
    ::close(reads_);
  }
  LocalRun(const LocalRun&) = delete;
  LocalRun& operator=(const LocalRun&) = delete;

  pid_t pid() const { return pid_; }
  /// Control-C, as the terminal makes a signal of it.
  void press_control_c() const {
    if (::write(reads_, "\x03", 1) != 1) std::abort();
  }
  /// As a person or another program sends it.
  void send(int signal) const {
    if (signal == SIGINT && terminal_ >= 0)
      press_control_c();
    else
      ::kill(pid_, signal);
  }
  /// True when `reached` came true while the command ran.
  bool until(const std::function<bool()>& reached) {
    for (const Stopwatch waited; !ended() && waited.seconds() < 120;) {
      if (reached()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  /// 128 + N when signal N ended it; -1 when it did not end within the limit. All that it printed is read
  /// then.
  int wait() {
    until([] { return false; });
    if (!ended()) return -1;
    finish_reading();
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  /// What is left of the command and of what it started, whoever is the parent now.
  std::vector<pid_t> processes() const { return processes_with(mark_); }
  std::map<int, pid_t> ranks() const { return ranks_among(processes()); }
  /// What came out so far, with the control sequences that went to the terminal.
  std::string printed() {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  /// After the end: the terminal is set as before, and its cursor is at the begin of an empty line.
  std::string terminal_defect() {
    termios now{};
    if (::tcgetattr(terminal_, &now) != 0) return "the terminal is gone";
    if (std::memcmp(&now, &before_, sizeof now) != 0) return "the terminal is set to something else";
    finish_reading();
    const std::string text = printed();
    const size_t line = text.find_last_of("\r\n");
    const std::string rest = line == std::string::npos ? text : text.substr(line + 1);
    // ^C: the terminal's own, where it came when all was said.
    const bool empty = rest.empty() || rest == "\033[K" || rest == "^C";
    return empty ? "" : "a line is left on the terminal: " + rest;
  }

 private:
  void open(Where where, int& other) {
    int ends[2] = {-1, -1};
    winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    if (where == Where::pipe ? ::pipe2(ends, O_CLOEXEC)
                             : ::openpty(&ends[0], &ends[1], nullptr, nullptr, &size))
      throw std::runtime_error("no pipe or terminal");
    reads_ = ends[0];
    other = ends[1];
    ::fcntl(reads_, F_SETFD, FD_CLOEXEC);
    ::fcntl(other, F_SETFD, FD_CLOEXEC);
    if (where == Where::terminal) ::tcgetattr(other, &before_);
  }
  [[noreturn]] void become(const std::string& line, int other) const {
    ::setsid();
    if (::isatty(other)) {
      ::ioctl(other, TIOCSCTTY, 0);
      ::dup2(other, STDIN_FILENO);
    }
    ::dup2(other, STDOUT_FILENO);
    ::dup2(other, STDERR_FILENO);
    for (const int signal : {SIGINT, SIGHUP}) ::signal(signal, SIG_DFL);  // the tests may run under nohup
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  /// A terminal that nobody has open any more says EIO; this test has it open, and waits for the command.
  void read_all() {
    char bytes[4096];
    while (true) {
      pollfd wanted{reads_, POLLIN, 0};
      const bool last = over_;
      if (::poll(&wanted, 1, 20) == 0) {
        if (last) return;
        continue;
      }
      const ssize_t got = ::read(reads_, bytes, sizeof bytes);
      if (got <= 0) return;
      const std::lock_guard lock(mutex_);
      text_.append(bytes, static_cast<size_t>(got));
    }
  }
  void finish_reading() {
    over_ = true;
    if (reader_.joinable()) reader_.join();
  }
  bool ended() {
    if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }

  std::string mark_;
  pid_t pid_ = -1;
  int reads_ = -1, terminal_ = -1, status_ = 0;
  bool ended_ = false;
  termios before_{};
  std::atomic<bool> over_ = false;
  std::mutex mutex_;  // of the text
  std::string text_;
  std::thread reader_;
};

/// How the launcher, or MPI, speaks; nothing of it may be seen.
inline std::string words_of_launcher(const std::string& printed) {
  for (const char* words : {"mpirun", "orterun", "MPI_ABORT", "Primary job", "exited on signal", "ORTE",
                            "PMIX", "OPAL", "------", "Open MPI"})
    if (printed.find(words) != std::string::npos) return words;
  return "";
}

}  // namespace temper
