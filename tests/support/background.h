#pragma once
// A command that runs beside the test, so that the test can send signals to it or take its files away. Waits
// end when what they wait for has come or the command has ended; a generous limit stops a hanging test. All
// that the command starts carries a mark, so that nothing of it outlives the test.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>

#include "tests/support/processes.h"
#include "tests/support/program.h"

namespace temper {

class Background {
 public:
  /// Starts a shell command in the program's folder, in a process group of its own; its output goes to
  /// `log` there.
  Background(const Program& program, const std::string& command, const std::string& log = "output.log") {
    static std::atomic<int> count = 0;
    log_ = program.path(log);
    program.write(log, "");  // now: whoever reads it meanwhile does not see an earlier one end in the middle
    mark_ = fmt::format("TEMPER_TEST_JOB={}-{}", ::getpid(), ++count);
    const std::string line =
        fmt::format("cd {} && export {} && exec {} > {} 2>&1", program.folder().path(), mark_, command, log);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    for (const int signal : {SIGINT, SIGHUP}) ::signal(signal, SIG_DFL);  // the tests may run under nohup
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  ~Background() {
    if (!ended()) ::kill(-pid_, SIGKILL);
    for (const pid_t process : processes())
      ::kill(process, SIGKILL);  // mpirun gives its ranks groups of their own
    if (!ended()) ::waitpid(pid_, &status_, 0);
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  pid_t pid() const { return pid_; }
  /// The exit code; 128 + N when signal N ended it, as shells say it; -1 when it did not end within the
  /// limit.
  int wait() {
    until([] { return false; });
    if (!ended_) return -1;
    if (code_of_ranks_ != 0) return code_of_ranks_;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  /// True when `reached` came true while the command ran.
  bool until(const std::function<bool()>& reached) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!ended() && std::chrono::steady_clock::now() < limit) {
      if (reached()) return true;
      end_stuck_launcher();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  /// Processes that the command itself started: under mpirun, the ranks.
  std::vector<pid_t> children() const {
    std::vector<pid_t> found;
    for (const pid_t process : all_processes())
      if (const std::string state = state_and_parent(process);
          !state.empty() && std::stoi(state.substr(2)) == pid_)
        found.push_back(process);
    return found;
  }
  /// All that is left of the command and of what it started, whoever is the parent now.
  std::vector<pid_t> processes() const { return processes_with(mark_); }
  /// The processes of ranks that mpirun has started so far.
  std::map<int, pid_t> ranks() const { return ranks_among(children()); }
  /// The process of a rank, once mpirun has started it. Throws where the command ended before: a signal to a
  /// number that stands for none would go to every process of the machine.
  pid_t rank(int number) {
    pid_t found = -1;
    until([&] {
      const std::map<int, pid_t> there = ranks();
      if (there.contains(number)) found = there.at(number);
      return found > 0;
    });
    if (found < 0) throw std::runtime_error(fmt::format("no process of rank {}", number));
    return found;
  }
  /// What a process has had of the processors; 0 when it has ended.
  static double processor_seconds(pid_t process) {
    clockid_t clock = 0;
    timespec time{};
    if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  static bool stands_still(pid_t process) { return state_and_parent(process).starts_with("T"); }
  /// True when the signal has arrived and waits to be handled: the process is stopped.
  static bool pending(pid_t process, int signal) { return holds(mask(process, "ShdPnd:"), signal); }
  /// True while the process's first thread lets the signal wait, and not all: a call of libc that makes a
  /// thread or a process blocks every signal for a moment.
  static bool blocked(pid_t process, int signal) {
    const uint64_t waiting = mask(process, "SigBlk:");
    return holds(waiting, signal) && !holds(waiting, SIGUSR2);
  }
  /// True while the process has one thread and lets the signal through: MPI, which starts others, has not
  /// begun.
  static bool before_mpi(pid_t process, int signal) {
    return list_directory(fmt::format("/proc/{}/task", process)).size() == 1 && !blocked(process, signal);
  }
  /// mpirun would have waited for ever with no rank left, and was ended here.
  bool was_stuck() const { return code_of_ranks_ != 0; }

 private:
  /// One of the masks of signals in /proc; 0 where the process is gone.
  static uint64_t mask(pid_t process, const std::string& name) {
    std::ifstream file(fmt::format("/proc/{}/status", process));
    for (std::string line; std::getline(file, line);)
      if (line.starts_with(name)) return std::stoull(line.substr(name.size()), nullptr, 16);
    return 0;
  }
  static bool holds(uint64_t mask, int signal) { return (mask >> (signal - 1) & 1) != 0; }
  /// Some builds of PMIx lock themselves out in the server's end when a rank was killed while it connected:
  /// mpirun then waits for ever with no rank left. After three seconds of that it is ended, and the code of
  /// the first rank that failed by itself is its own, or the one that it has said where all are gone.
  void end_stuck_launcher() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look_) return;
    next_look_ = now + std::chrono::milliseconds(500);
    std::error_code gone;
    const std::string program =
        std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid_), gone).string();
    int code = 0;
    bool all_dead =
        program.find("orterun") != std::string::npos || program.find("mpirun") != std::string::npos;
    const std::vector<pid_t> left = children();
    had_children_ = had_children_ || !left.empty();
    if (left.empty() && had_children_) code = said_code();
    for (const pid_t child : left) {
      const std::string state = state_and_parent(child);
      all_dead = all_dead && state.starts_with("Z");
      const int status = std::atoi(state.substr(state.find_last_of(' ') + 1).c_str());
      const int of_child = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      const bool by_launcher = code == 128 + SIGTERM || code == 128 + SIGKILL;  // as it ends the others
      if (of_child != 0 && (code == 0 || by_launcher)) code = of_child;
    }
    looks_dead_ = all_dead && code != 0 ? looks_dead_ + 1 : 0;
    if (looks_dead_ < 6) return;
    code_of_ranks_ = code;
    ::kill(pid_, SIGKILL);
  }
  /// 0: none yet.
  int said_code() const {
    const std::string said = path_exists(log_) ? read_file(log_, int64_t{64} << 20) : "",
                      words = "Exit code:";
    const size_t at = said.rfind(words);
    return at == std::string::npos ? 0 : std::atoi(said.c_str() + at + words.size());
  }
  bool ended() {
    if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }

  std::string mark_, log_;
  pid_t pid_ = -1;
  int status_ = 0, code_of_ranks_ = 0, looks_dead_ = 0;
  bool ended_ = false, had_children_ = false;
  std::chrono::steady_clock::time_point next_look_ = {};
};

}  // namespace temper
