#include "src/core/process/local_parent.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "src/core/check.h"
#include "src/core/process/descriptors.h"

namespace temper {
namespace {

std::atomic<int> parent = -1;  // the socket; a signal handler can reach nothing else
static_assert(std::atomic<int>::is_always_lock_free);

[[noreturn]] void fail_parent(const std::string& why) {
  fail(Exit::environment, {.what = "the process that has started this rank cannot be reached",
                           .where = kLocalParentVariable,
                           .why = why,
                           .fix = "start the command with --local again"});
}

int connect_to_parent(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) fail_parent("its name is too long");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int line = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (line < 0 || ::connect(line, reinterpret_cast<const sockaddr*>(&address), size) != 0)
    fail_parent(std::strerror(errno));
  ucred peer{};
  socklen_t peer_size = sizeof peer;
  if (::getsockopt(line, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0 || peer.uid != ::geteuid())
    fail_parent("another user has this name");
  return line;
}

/// stdin, stdout and stderr.
std::array<int, 3> parents_descriptors(int line) {
  std::array<int, 3> descriptors;
  char byte = 0;
  if (receive_descriptors(line, &byte, 1, descriptors) <= 0 || descriptors.back() < 0)
    fail_parent("it has ended");
  return descriptors;
}

/// Nothing comes over the line any more: what Linux has to say about it is that the other end is closed.
void die_with(int line) {
  ::fcntl(line, F_SETSIG, SIGKILL);
  ::fcntl(line, F_SETOWN, ::getpid());
  ::fcntl(line, F_SETFL, ::fcntl(line, F_GETFL) | O_ASYNC);
  char byte = 0;
  if (::recv(line, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0) ::raise(SIGKILL);  // closed before that was said
}

int rank_of_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"})
    if (const char* text = std::getenv(name)) return std::atoi(text);
  fail_parent("no launcher tells which rank this is");
}

}  // namespace

void join_local_parent() {
  const char* const name = std::getenv(kLocalParentVariable);
  if (!name) return;
  const int line = connect_to_parent(name);
  ::unsetenv(kLocalParentVariable);  // what this process starts is no rank
  const RankWord hello{RankWord::hello, rank_of_launcher()};
  ::send(line, &hello, sizeof hello, MSG_NOSIGNAL);
  const std::array<int, 3> descriptors = parents_descriptors(line);
  for (int i = 0; i < 3; ++i) {
    ::dup2(descriptors[static_cast<size_t>(i)], i);
    ::close(descriptors[static_cast<size_t>(i)]);
  }
  // The launcher gives ranks process groups of their own: to a terminal they are in the background, which
  // with `stty tostop` would stop what writes to it.
  ::signal(SIGTTOU, SIG_IGN);
  sigset_t held;  // in the launcher; it should not hand that on
  sigemptyset(&held);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&held, signal);
  ::sigprocmask(SIG_UNBLOCK, &held, nullptr);
  die_with(line);
  parent = line;
}

bool has_local_parent() { return parent >= 0; }

void tell_local_parent(RankWord::Kind kind, int32_t value) {
  const int line = parent;
  const RankWord word{kind, value};
  if (line >= 0) ::send(line, &word, sizeof word, MSG_NOSIGNAL);
}

void leave_at_once(int code) {
  tell_local_parent(RankWord::failed, code);
  ::_exit(code);
}

}  // namespace temper
