#include "src/run/local/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "src/core/check.h"

namespace temper {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> list;
  for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  return list;
}

/// In the child. Nothing here may need a lock that another thread of the parent held.
[[noreturn]] void become(const char* program, char* const* argv, char* const* environment, int null,
                         int output, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before that was said
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&held, signal);
  ::sigprocmask(SIG_SETMASK, &held, nullptr);
  ::dup2(null, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execve(program, argv, environment);
  ::_exit(127);
}

}  // namespace

Child start_child(const std::string& program, const std::vector<std::string>& argv,
                  const std::vector<std::string>& environment) {
  const std::vector<char*> words = pointers(argv), variables = pointers(environment);
  int ends[2] = {-1, -1};
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t parent = ::getpid();
  const pid_t pid = null >= 0 && ::pipe2(ends, O_CLOEXEC) == 0 ? ::fork() : -1;
  if (pid == 0) become(program.c_str(), words.data(), variables.data(), null, ends[1], parent);
  if (pid < 0)
    fail(Exit::environment, {.what = "a program cannot be started",
                             .where = program,
                             .why = std::strerror(errno),
                             .fix = "raise the limits on processes and files (ulimit -u, ulimit -n)"});
  ::setpgid(pid, pid);  // whoever is first
  ::close(null);
  ::close(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {pid, ends[0]};
}

bool read_child(const Child& child, std::string& text, size_t most) {
  char block[4096];
  for (;;) {
    const ssize_t got = ::read(child.output, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 && errno == EAGAIN;
    text.append(block, std::min(static_cast<size_t>(got), most - std::min(most, text.size())));
  }
}

int ended_child(const Child& child) {
  int status = 0;
  if (::waitpid(child.pid, &status, WNOHANG) != child.pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace temper
