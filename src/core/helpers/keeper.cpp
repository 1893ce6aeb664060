#include "src/core/helpers/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <vector>

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
  ::prctl(PR_SET_NAME, "temper-helpers");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // what programs leave behind becomes a child of the keeper
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
}

/// In the child that becomes the program. Only a failure comes back, as errno in `status`.
[[noreturn]] void become(char** argv, const Pipe& in, const Pipe& out, const Pipe& status, pid_t keeper) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != keeper) ::_exit(127);  // it died before that was said
  for (const int signal : kStopSignals) ::signal(signal, SIG_DFL);
  ::dup2(in.read, 0);
  ::dup2(out.write, 1);
  ::execvp(argv[0], argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = ::write(status.write, &error, sizeof error);
  ::_exit(127);
}

void answer(const KeeperAnswer& answer, const Pipe* in, const Pipe* out) {
  KeeperAnswer copy = answer;
  iovec part{&copy, sizeof copy};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  int descriptors[2];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)] = {};
  if (in && out) {
    descriptors[0] = in->write;
    descriptors[1] = out->read;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof descriptors);
    std::memcpy(CMSG_DATA(head), descriptors, sizeof descriptors);
  }
  ::sendmsg(kSocket, &message, MSG_NOSIGNAL);
}

/// The pid, or 0.
pid_t start(char* words, const char* end) {
  std::vector<char*> argv;
  for (char* at = words; at < end; at += std::strlen(at) + 1) argv.push_back(at);
  argv.push_back(nullptr);
  Pipe in, out, status;
  const auto refuse = [](int error) {
    answer({0, error}, nullptr, nullptr);
    return 0;
  };
  if (!in.open() || !out.open() || !status.open()) return refuse(errno);
  const pid_t keeper = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return refuse(errno);
  if (pid == 0) become(argv.data(), in, out, status, keeper);
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
  answer({pid, 0}, &in, &out);
  return pid;
}

/// Pids are not given out again before they are waited for, and that is only here.
void end(pid_t pid) {
  ::kill(-pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  answer({}, nullptr, nullptr);
}

/// Children of this process, those that were orphaned below it included.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/children", ::getpid());
  if (std::FILE* file = std::fopen(path, "re")) {
    for (int pid = 0; std::fscanf(file, "%d", &pid) == 1;) found.push_back(pid);
    std::fclose(file);
  }
  return found;
}

[[noreturn]] void leave_nobody_behind(const std::vector<pid_t>& programs) {
  constexpr int kPolls = 2000;  // of a millisecond: a process in the middle of a disk access dies later
  for (const pid_t pid : programs) ::kill(-pid, SIGKILL);
  for (int i = 0; i < kPolls; ++i) {
    for (const pid_t pid : children()) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (::waitpid(-1, nullptr, WNOHANG) < 0) break;
    ::usleep(1000);
  }
  ::_exit(0);
}

}  // namespace

void keep_programs(int socket, pid_t parent) {
  constexpr int kLookUp = 1000;  // milliseconds: another child of the parent may hold its socket open
  leave_the_parent(socket);
  static char request[kMaxRequest];
  std::vector<pid_t> programs;
  while (::getppid() == parent) {
    pollfd wait{kSocket, POLLIN, 0};
    if (::poll(&wait, 1, kLookUp) <= 0) continue;
    const ssize_t got = ::recv(kSocket, request, sizeof request, 0);
    if (got <= 0) break;
    pid_t pid = 0;
    if (request[0] == kStartProgram) {
      pid = start(request + 1, request + got);
      if (pid > 0) programs.push_back(pid);
    } else {
      std::memcpy(&pid, request + 1, sizeof pid);
      end(pid);
      std::erase(programs, pid);
    }
  }
  leave_nobody_behind(programs);
}

}  // namespace temper
