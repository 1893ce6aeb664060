#include "src/core/helpers/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "src/core/helpers/error_lines.h"
#include "src/core/helpers/launcher_variables.h"
#include "src/core/process/children.h"
#include "src/core/process/descriptors.h"

namespace temper {
namespace {

constexpr int kSocket = 3;  // of the keeper, which has closed everything else but stderr
constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};

struct Pipe {
  int read = -1, write = -1;
  bool open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
  ~Pipe() {
    if (read >= 0) ::close(read);
    if (write >= 0) ::close(write);
  }
};

/// Alone with its socket and stderr: a pipe of the run that stays open here would never end for its reader.
void leave_the_parent(int socket) {
  ::setsid();
  ::prctl(PR_SET_NAME, "helper-keeper");  // `pkill -9 temper` leaves it to end the programs
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);     // what programs leave behind becomes a child of the keeper
  for (const int signal : kStopSignals) ::signal(signal, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDWR);
  const int copy = ::fcntl(socket, F_DUPFD, 16);  // out of the way of 0 to 3
  ::dup2(null, 0);
  ::dup2(null, 1);
  ::dup2(copy, kSocket);
  ::fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  ::close_range(kSocket + 1, ~0u, 0);
  remove_launcher_variables();
}

/// In the child that becomes the program. Only a failure comes back, as errno in `status`.
[[noreturn]] void become(char** argv, const Pipe& in, const Pipe& out, const Pipe& errors, const Pipe& status,
                         pid_t keeper) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != keeper) ::_exit(127);  // it died before that was said
  for (const int signal : kStopSignals) ::signal(signal, SIG_DFL);
  ::dup2(in.read, 0);
  ::dup2(out.write, 1);
  ::dup2(errors.write, 2);
  ::execvp(argv[0], argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = ::write(status.write, &error, sizeof error);
  ::_exit(127);
}

void answer(const KeeperAnswer& answer, const Pipe* in, const Pipe* out) {
  const bool both = in && out;
  const int descriptors[] = {both ? in->write : -1, both ? out->read : -1};
  send_descriptors(kSocket, &answer, sizeof answer, std::span(descriptors, both ? 2 : 0));
}

/// The pid, or 0.
pid_t start(char* words, const char* end, ErrorLines& lines) {
  std::vector<char*> argv;
  for (char* at = words; at < end; at += std::strlen(at) + 1) argv.push_back(at);
  argv.push_back(nullptr);
  Pipe in, out, errors, status;
  const auto refuse = [](int error) {
    answer({0, error}, nullptr, nullptr);
    return 0;
  };
  if (!in.open() || !out.open() || !errors.open() || !status.open()) return refuse(errno);
  const pid_t keeper = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return refuse(errno);
  if (pid == 0) become(argv.data(), in, out, errors, status, keeper);
  ::setpgid(pid, pid);  // whoever is first
  ::close(status.write);
  status.write = -1;
  int error = 0;
  const ssize_t told = ::read(status.read, &error, sizeof error);  // the end of the pipe: exec was done
  if (told > 0) {
    ::waitpid(pid, nullptr, 0);
    return refuse(error);
  }
  ::fcntl(in.write, F_SETFL, O_NONBLOCK);
  ::fcntl(out.read, F_SETFL, O_NONBLOCK);
  ::fcntl(errors.read, F_SETFL, O_NONBLOCK);
  lines.add(std::exchange(errors.read, -1));
  answer({pid, 0}, &in, &out);
  return pid;
}

/// A program's pid is not given out again before it is waited for, and that is only after its end: what is in
/// the middle of a disk access dies later.
void wait_for_orphans(const std::vector<pid_t>& programs) {
  for (const pid_t pid : children_of(::getpid()))
    if (std::find(programs.begin(), programs.end(), pid) == programs.end()) ::waitpid(pid, nullptr, WNOHANG);
}

/// Kills a program with what it has started, also in groups and sessions of their own. Only what had lost its
/// parent before stays till the end: nobody knows whose it is.
void end(pid_t program, std::vector<pid_t>& programs) {
  ::kill(program, SIGSTOP);  // starts nothing more while it is looked at
  std::vector<pid_t> below{program};
  for (size_t i = 0; i < below.size(); ++i)
    for (const pid_t pid : children_of(below[i])) below.push_back(pid);
  ::kill(-program, SIGKILL);
  for (const pid_t pid : below) ::kill(pid, SIGKILL);
  std::erase(programs, program);
  answer({}, nullptr, nullptr);
}

[[noreturn]] void leave_nobody_behind(const std::vector<pid_t>& programs, ErrorLines& lines) {
  constexpr int kPolls = 2000;  // of a millisecond: a process in the middle of a disk access dies later
  for (const pid_t pid : programs) ::kill(-pid, SIGKILL);
  for (int i = 0; i < kPolls; ++i) {
    for (const pid_t pid : children_of(::getpid())) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (::waitpid(-1, nullptr, WNOHANG) < 0) break;
    ::usleep(1000);
  }
  constexpr int kMostBlocks = 64;  // a pipe's
  for (int i = 0; i < kMostBlocks && lines.pass_on(); ++i) {
  }
  lines.finish();
  ::_exit(0);
}

}  // namespace

void keep_programs(int socket, pid_t parent) {
  constexpr int kLookUp = 1000;  // milliseconds: another child of the parent may hold its socket open
  leave_the_parent(socket);
  static char request[kMaxRequest];
  std::vector<pid_t> programs;
  ErrorLines lines;
  while (::getppid() == parent) {
    wait_for_orphans(programs);
    std::vector<pollfd> waits{{kSocket, POLLIN, 0}};
    lines.add_to(waits);
    ::poll(waits.data(), waits.size(), lines.patience(kLookUp));
    lines.pass_on();
    if (waits.front().revents == 0) continue;
    const ssize_t got = ::recv(kSocket, request, sizeof request, 0);
    if (got <= 0) break;
    pid_t pid = 0;
    if (request[0] == kStartProgram) {
      pid = start(request + 1, request + got, lines);
      if (pid > 0) programs.push_back(pid);
    } else {
      std::memcpy(&pid, request + 1, sizeof pid);
      end(pid, programs);
    }
  }
  leave_nobody_behind(programs, lines);
}

}  // namespace temper
