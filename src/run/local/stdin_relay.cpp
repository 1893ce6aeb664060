#include "src/run/local/stdin_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace temper {

StdinRelay::StdinRelay(int from) : from_(from), reads_(from) {
  int ends[2];
  if (::isatty(from) != 1 || ::pipe2(ends, O_CLOEXEC) != 0) return;
  reads_ = ends[0];
  writes_ = ends[1];
  ::fcntl(writes_, F_SETFL, O_NONBLOCK);
}

StdinRelay::~StdinRelay() {
  close_reads();
  if (relays()) ::close(writes_);
}

void StdinRelay::close_reads() {
  if (reads_ != from_) ::close(std::exchange(reads_, from_));
}

void StdinRelay::add_to(std::vector<pollfd>& wanted) const {
  if (!relays()) return;
  wanted.push_back(waiting_.empty() ? pollfd{from_, POLLIN, 0} : pollfd{writes_, POLLOUT, 0});
}

void StdinRelay::look() {
  if (!relays()) return;
  bool ended = false;
  if (pollfd typed{from_, POLLIN, 0}; waiting_.empty() && ::poll(&typed, 1, 0) == 1) {
    char block[4096];
    const ssize_t got = ::read(from_, block, sizeof block);  // a line of the terminal; 0: Control-D
    if (got > 0) waiting_.assign(block, static_cast<size_t>(got));
    ended = got == 0 || (got < 0 && errno != EINTR);
  }
  if (!waiting_.empty()) {
    const ssize_t put = ::write(writes_, waiting_.data(), waiting_.size());
    if (put > 0) waiting_.erase(0, static_cast<size_t>(put));
    ended = ended || (put < 0 && errno != EAGAIN && errno != EINTR);  // the rank reads no more
  }
  if (ended) ::close(std::exchange(writes_, -1));
}

}  // namespace temper
