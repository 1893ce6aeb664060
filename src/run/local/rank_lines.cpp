#include "src/run/local/rank_lines.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <random>
#include <utility>

#include "src/core/check.h"
#include "src/core/process/descriptors.h"

namespace temper {
namespace {

[[noreturn]] void fail_socket() {
  fail(Exit::environment, {.what = "ranks of this host cannot be waited for",
                           .where = "--local, a socket",
                           .why = std::strerror(errno),
                           .fix = "raise the limit on files (ulimit -n)"});
}

int listen_at(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  constexpr int kBacklog = 4096;
  if (listener < 0 || ::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener, kBacklog) != 0)
    fail_socket();
  return listener;
}

ucred peer_of(int line) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(line, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer = {.pid = -1, .uid = 0, .gid = 0};
  return peer;
}

/// It has ended as a launcher ends the ranks of a job that has failed already.
bool is_end_by_signal(int code) {
  const auto signals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
  return std::any_of(signals.begin(), signals.end(), [&](int s) { return code == 128 + s; });
}

}  // namespace

RankLines::RankLines(int ranks, int input) : input_(input), ranks_(static_cast<size_t>(ranks)) {
  std::random_device draw;
  name_ = fmt::format("temper-local-{}-{:08x}{:08x}", ::getpid(), draw(), draw());
  null_ = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_ < 0) fail_socket();
  listener_ = listen_at(name_);
}

RankLines::~RankLines() {
  for (const Rank& rank : ranks_)
    if (rank.line >= 0) ::close(rank.line);
  for (const int line : newcomers_) ::close(line);
  ::close(listener_);
  ::close(null_);
}

void RankLines::add_to(std::vector<pollfd>& wanted) const {
  wanted.push_back({listener_, POLLIN, 0});
  for (const int line : newcomers_) wanted.push_back({line, POLLIN, 0});
  for (const Rank& rank : ranks_)
    if (rank.runs()) wanted.push_back({rank.line, POLLIN, 0});
}

void RankLines::look() {
  welcome();
  std::erase_if(newcomers_, [&](int line) { return take_hello(line); });
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i].runs()) take_words(i);
}

void RankLines::welcome() {
  for (;;) {
    const int line = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (line < 0) return;
    if (peer_of(line).uid == ::geteuid())
      newcomers_.push_back(line);
    else
      ::close(line);
  }
}

/// True where it is none any more.
bool RankLines::take_hello(int line) {
  RankWord word;
  const ssize_t got = ::recv(line, &word, sizeof word, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  const bool legal = got == sizeof word && word.kind == RankWord::hello && word.value >= 0 &&
                     static_cast<size_t>(word.value) < ranks_.size() &&
                     !ranks_[static_cast<size_t>(word.value)].joined();
  if (!legal) {
    ::close(line);
    return true;
  }
  Rank& rank = ranks_[static_cast<size_t>(word.value)];
  rank.process = peer_of(line).pid;
  rank.line = line;
  give_descriptors(line, word.value);
  return true;
}

void RankLines::give_descriptors(int line, int rank) const {
  const auto open_or_null = [&](int descriptor) {
    return ::fcntl(descriptor, F_GETFD) >= 0 ? descriptor : null_;
  };
  const std::array<int, 3> descriptors{rank == 0 ? open_or_null(input_) : null_, open_or_null(STDOUT_FILENO),
                                       open_or_null(STDERR_FILENO)};
  const char byte = 0;
  send_descriptors(line, &byte, 1, descriptors);  // one that has died is seen by its line
}

void RankLines::take_words(size_t i) {
  Rank& rank = ranks_[i];
  RankWord word;
  ssize_t got;
  while ((got = ::recv(rank.line, &word, sizeof word, 0)) == sizeof word) {
    if (word.kind == RankWord::asks) rank.asks = true;
    if (word.kind == RankWord::done) rank.done = word.value;
    if (word.kind != RankWord::failed) continue;
    rank.failed = word.value;
    if (!failed_ && !(lost_ && is_end_by_signal(word.value))) failed_ = word.value;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  ::close(std::exchange(rank.line, -1));
  if (!rank.done && !rank.failed && !lost_) lost_ = static_cast<int>(i);
}

bool RankLines::all_ask() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.asks; });
}
bool RankLines::all_joined() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.joined(); });
}
bool RankLines::any_joined() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.joined(); });
}
bool RankLines::any_runs() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.runs(); });
}
bool RankLines::all_done() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.done.has_value(); });
}

void RankLines::hand_on(int meant) const {
  for (const Rank& rank : ranks_)
    if (rank.runs()) ::sigqueue(rank.process, SIGUSR1, {.sival_int = meant});
}

void RankLines::kill(int signal) const {
  for (const Rank& rank : ranks_)
    if (rank.runs()) ::kill(rank.process, signal);
}

}  // namespace temper
