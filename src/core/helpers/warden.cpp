#include "src/core/helpers/warden.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "src/core/process/children.h"
#include "src/core/stopwatch.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

void say(int pipe, const void* bytes, size_t size) {
  [[maybe_unused]] const ssize_t told = ::write(pipe, bytes, size);
}

/// Folders that nobody may write to (caches of packages) are opened first.
void remove_folder(const fs::path& folder, int depth = 0) {
  constexpr int kDeepest = 256;
  std::error_code error;
  if (depth == 0 && (fs::remove_all(folder, error), !error)) return;
  fs::permissions(folder, fs::perms::owner_all, fs::perm_options::add, error);
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->symlink_status(error).type() == fs::file_type::directory && depth < kDeepest)
      remove_folder(at->path(), depth + 1);
  if (depth == 0) fs::remove_all(folder, error);
}

/// An empty name where none can be made.
std::string make_folder() {
  const char* const parent = std::getenv("TMPDIR");
  std::string name = std::string(parent && *parent ? parent : "/tmp") + "/temper-program-XXXXXX";
  return ::mkdtemp(name.data()) ? name : "";
}

[[noreturn]] void become(const WardenOrder& order, const std::string& folder, pid_t warden) {
  const auto fail_with = [&](int error) {
    const StartStatus status{0, error};
    say(order.status, &status, sizeof status);
    ::_exit(127);
  };
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != warden) ::_exit(127);  // it died before that was said
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::chdir(folder.c_str()) != 0) fail_with(errno);
  std::vector<std::string> variables{"TMPDIR=" + folder, "PWD=" + folder};
  for (const std::string& variable : order.variables) {
    const auto same = [&](const std::string& other) {
      return other.compare(0, other.find('=') + 1, variable, 0, variable.find('=') + 1) == 0;
    };
    std::erase_if(variables, same);
    variables.push_back(variable);
  }
  std::vector<char*> made;
  for (std::string& variable : variables) made.push_back(variable.data());
  made.push_back(nullptr);
  ::environ = made.data();  // whose PATH is looked through
  ::dup2(order.input, 0);
  ::dup2(order.output, 1);
  ::dup2(order.errors, 2);
  ::execvp(order.argv[0], order.argv);
  fail_with(errno);
  ::_exit(127);
}

/// What was orphaned and has ended, but for the program, whose pid is not given out again while the warden
/// lives.
void bury_orphans(pid_t program) {
  for (const pid_t pid : children_of(::getpid()))
    if (pid != program) ::waitpid(pid, nullptr, WNOHANG);
}

bool has_ended(pid_t program) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(program), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == program;
}

/// As waitpid has it; the zombie stays.
int exit_status(pid_t program) {
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(program), &info, WEXITED | WNOHANG | WNOWAIT);
  return info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
}

/// Until none is left that can die; one in the middle of a disk access dies later.
void kill_all_below(pid_t program) {
  constexpr int kPolls = 1500;  // of a millisecond
  for (int i = 0; i < kPolls; ++i) {
    ::kill(-program, SIGKILL);
    std::vector<pid_t> below = children_of(::getpid());
    for (size_t k = 0; k < below.size(); ++k) {
      ::kill(below[k], SIGSTOP);  // starts nothing more while it is looked at
      for (const pid_t pid : children_of(below[k])) below.push_back(pid);
    }
    for (const pid_t pid : below) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (::waitpid(-1, nullptr, WNOHANG) < 0) return;
    ::usleep(1000);
  }
}

}  // namespace

void watch_program(const WardenOrder& order, pid_t keeper) {
  sigset_t heard;
  sigemptyset(&heard);
  sigaddset(&heard, SIGCHLD);
  sigaddset(&heard, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &heard, nullptr);
  ::signal(SIGTERM, SIG_DFL);  // the keeper ignores it, and what is ignored cannot be waited for
  ::prctl(PR_SET_NAME, "helper-warden");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != keeper) ::_exit(0);
  ::setpgid(0, 0);
  const std::string folder = make_folder();
  const pid_t warden = ::getpid();
  const pid_t program = folder.empty() ? -1 : ::fork();
  if (program == 0) become(order, folder, warden);
  const StartStatus status{program, program < 0 ? errno : 0};
  say(order.status, &status, sizeof status);
  for (const int pipe : {order.input, order.output, order.errors, order.status}) ::close(pipe);
  if (program > 0) ::setpgid(program, program);  // whoever is first
  bool told = program < 0, ends = program < 0;
  while (!ends) {
    const int signal = ::sigwaitinfo(&heard, nullptr);
    if (!told && has_ended(program)) {
      const int how = exit_status(program);
      say(order.exited, &how, sizeof how);
      told = true;
    }
    bury_orphans(program);
    ends = signal == SIGTERM;
  }
  if (program > 0) {
    if (!told) ::kill(-program, SIGTERM);
    const Stopwatch waited;
    while (!has_ended(program) && waited.seconds() * 1000 < kGraceMs) ::usleep(2000);
    kill_all_below(program);
  }
  if (!folder.empty()) remove_folder(folder);
  ::_exit(0);
}

}  // namespace temper
