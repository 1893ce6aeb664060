#pragma once
// A command that runs beside the test, so that the test can send signals to it or take its files away. Waits
// end when what they wait for has come or the command has ended; a generous limit stops a hanging test.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/support/program.h"

namespace temper {

class Background {
 public:
  /// Starts a shell command in the program's folder, in a process group of its own; its output goes to
  /// output.log.
  Background(const Program& program, const std::string& command) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    const std::string line =
        fmt::format("cd {} && exec {} > output.log 2>&1", program.folder().path(), command);
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  ~Background() {
    if (ended()) return;
    ::kill(-pid_, SIGKILL);
    for (pid_t child : children()) ::kill(child, SIGKILL);  // mpirun gives its ranks groups of their own
    ::waitpid(pid_, &status_, 0);
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  pid_t pid() const { return pid_; }
  /// The exit code; 128 + N when signal N ended it, as shells say it; -1 when it did not end within the
  /// limit.
  int wait() {
    until([] { return false; });
    if (!ended_) return -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  /// True when `reached` came true while the command ran.
  bool until(const std::function<bool()>& reached) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!ended() && std::chrono::steady_clock::now() < limit) {
      if (reached()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  /// Processes that the command itself started: under mpirun, the ranks.
  std::vector<pid_t> children() const {
    std::vector<pid_t> found;
    for (const std::string& name : list_directory("/proc")) {
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const pid_t process = std::stoi(name);
      const std::string state = state_and_parent(process);
      if (!state.empty() && std::stoi(state.substr(2)) == pid_) found.push_back(process);
    }
    return found;
  }
  /// The process of a rank, once mpirun has started it; -1 when the command ended before.
  pid_t rank(int number) {
    const std::string sign = fmt::format("OMPI_COMM_WORLD_RANK={}", number) + '\0';
    pid_t found = -1;
    until([&] {
      for (const pid_t process : children()) {
        std::ifstream file(fmt::format("/proc/{}/environ", process));
        const std::string all((std::istreambuf_iterator<char>(file)), {});
        if (all.find(sign) != std::string::npos) found = process;
      }
      return found > 0;
    });
    return found;
  }
  static bool stands_still(pid_t process) { return state_and_parent(process).starts_with("T"); }
  /// True when the signal has arrived and waits to be handled: the process is stopped.
  static bool pending(pid_t process, int signal) { return in_mask(process, "ShdPnd:", signal); }

 private:
  /// "S 123 ...", from /proc; empty when there is no such process.
  static std::string state_and_parent(pid_t process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    std::string text;
    std::getline(file, text, '\0');              // nothing where the process ends before it is read
    const size_t after_name = text.rfind(") ");  // a process may have any name
    return after_name == std::string::npos ? "" : text.substr(after_name + 2);
  }
  static bool in_mask(pid_t process, const std::string& mask, int signal) {
    std::ifstream file(fmt::format("/proc/{}/status", process));
    for (std::string line; std::getline(file, line);)
      if (line.starts_with(mask))
        return (std::stoull(line.substr(mask.size()), nullptr, 16) >> (signal - 1) & 1) != 0;
    return false;
  }
  bool ended() {
    if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }

  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace temper
