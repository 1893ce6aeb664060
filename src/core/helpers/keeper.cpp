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
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "src/core/helpers/error_lines.h"
#include "src/core/helpers/launcher_variables.h"
#include "src/core/helpers/warden.h"
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

void answer(const KeeperAnswer& answer, std::initializer_list<int> pipes = {}) {
  send_descriptors(kSocket, &answer, sizeof answer, {pipes.begin(), pipes.size()});
}

void do_not_block(std::initializer_list<int> pipes) {
  for (const int pipe : pipes) ::fcntl(pipe, F_SETFL, O_NONBLOCK);
}

/// Words with a zero behind each.
std::vector<char*> words_of(char* at, const char* end) {
  std::vector<char*> words;
  for (; at < end; at += std::strlen(at) + 1) words.push_back(at);
  return words;
}

/// The programs that were started and are not ended, and the wardens of all that live.
struct Kept {
  std::vector<pid_t> programs, wardens;
  std::map<pid_t, pid_t> warden_of;  // by program
};

void start(char* words, const char* end, ErrorLines& lines, Kept& kept) {
  std::vector<char*> argv = words_of(words, end);
  argv.push_back(nullptr);
  Pipe in, out, errors, status;
  const auto refuse = [](int error) { answer({0, error}); };
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
  do_not_block({in.write, out.read, errors.read});
  lines.add(std::exchange(errors.read, -1));
  answer({pid, 0}, {in.write, out.read});
  kept.programs.push_back(pid);
}

/// What the warden says, and after it a program that could not be started.
StartStatus read_start(int pipe) {
  StartStatus all, one;
  while (true) {
    const ssize_t got = ::read(pipe, &one, sizeof one);  // the end of the pipe: exec was done
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof one) break;
    if (one.error != 0) all.error = one.error;
    if (one.pid > 0) all.pid = one.pid;
  }
  if (all.pid <= 0 && all.error == 0) all.error = ECHILD;  // killed as it began
  return all;
}

void start_apart(char* request, const char* end, Kept& kept) {
  KeptApart head;
  std::memcpy(&head, request, sizeof head);
  std::vector<char*> words = words_of(request + sizeof head, end);
  WardenOrder order{};
  order.variables.assign(words.begin() + head.words, words.end());
  words.resize(head.words);
  words.push_back(nullptr);
  order.argv = words.data();
  Pipe in, out, errors, status, exited;
  const auto refuse = [](int error) { answer({0, error}); };
  if (!in.open() || !out.open() || !errors.open() || !status.open() || !exited.open()) return refuse(errno);
  const pid_t keeper = ::getpid();
  const pid_t warden = ::fork();
  if (warden < 0) return refuse(errno);
  if (warden == 0) {
    for (const int pipe : {in.write, out.read, errors.read, status.read, exited.read, kSocket}) ::close(pipe);
    order.input = in.read, order.output = out.write, order.errors = errors.write;
    order.status = status.write, order.exited = exited.write;
    watch_program(order, keeper);
  }
  ::close(status.write);
  status.write = -1;
  kept.wardens.push_back(warden);
  const StartStatus begun = read_start(status.read);
  if (begun.error != 0) {
    ::kill(warden, SIGTERM);
    return refuse(begun.error);
  }
  do_not_block({in.write, out.read, errors.read, exited.read});
  answer({begun.pid, 0}, {in.write, out.read, errors.read, exited.read});
  kept.programs.push_back(begun.pid);
  kept.warden_of[begun.pid] = warden;
}

/// A program's pid is not given out again before it is waited for, and that is only after its end: what is in
/// the middle of a disk access dies later.
void wait_for_orphans(Kept& kept) {
  for (const pid_t pid : children_of(::getpid())) {
    if (std::find(kept.programs.begin(), kept.programs.end(), pid) != kept.programs.end()) continue;
    if (::waitpid(pid, nullptr, WNOHANG) == pid) std::erase(kept.wardens, pid);
  }
}

/// Kills a program with what it has started, also in groups and sessions of their own. Only what had lost its
/// parent before stays till the end: nobody knows whose it is. A warden ends its own, and knows.
void end(pid_t program, Kept& kept) {
  std::erase(kept.programs, program);
  if (const auto found = kept.warden_of.find(program); found != kept.warden_of.end()) {
    ::kill(found->second, SIGTERM);
    kept.warden_of.erase(found);
    return answer({});
  }
  ::kill(program, SIGSTOP);  // starts nothing more while it is looked at
  std::vector<pid_t> below{program};
  for (size_t i = 0; i < below.size(); ++i)
    for (const pid_t pid : children_of(below[i])) below.push_back(pid);
  ::kill(-program, SIGKILL);
  for (const pid_t pid : below) ::kill(pid, SIGKILL);
  answer({});
}

/// Wardens that are not through with their folders by then go on alone.
[[noreturn]] void leave_nobody_behind(const Kept& kept, ErrorLines& lines) {
  constexpr int kPolls = 2000;  // of a millisecond: a process in the middle of a disk access dies later
  for (const pid_t pid : kept.programs)
    if (!kept.warden_of.contains(pid)) ::kill(-pid, SIGKILL);
  for (const pid_t pid : kept.wardens) ::kill(pid, SIGTERM);
  for (int i = 0; i < kPolls; ++i) {
    for (const pid_t pid : children_of(::getpid()))
      if (std::find(kept.wardens.begin(), kept.wardens.end(), pid) == kept.wardens.end())
        ::kill(pid, SIGKILL);
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
  Kept kept;
  ErrorLines lines;
  while (::getppid() == parent) {
    wait_for_orphans(kept);
    std::vector<pollfd> waits{{kSocket, POLLIN, 0}};
    lines.add_to(waits);
    ::poll(waits.data(), waits.size(), lines.patience(kLookUp));
    lines.pass_on();
    if (waits.front().revents == 0) continue;
    const ssize_t got = ::recv(kSocket, request, sizeof request, 0);
    if (got <= 0) break;
    if (request[0] == kStartProgram) {
      start(request + 1, request + got, lines, kept);
    } else if (request[0] == kStartApart) {
      start_apart(request + 1, request + got, kept);
    } else {
      pid_t pid = 0;
      std::memcpy(&pid, request + 1, sizeof pid);
      end(pid, kept);
    }
  }
  leave_nobody_behind(kept, lines);
}

}  // namespace temper
