#include "src/core/helpers/error_lines.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "src/core/text/printable.h"

namespace temper {
namespace {

constexpr size_t kLongestLine = 1000;  // a longer one comes out in pieces

bool takes_more() {
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&room, 1, 0) == 1;
}

}  // namespace

void ErrorLines::add(int descriptor) { sources_.push_back({descriptor}); }

void ErrorLines::add_to(std::vector<pollfd>& wanted) const {
  if (!unsent_.empty()) return wanted.push_back({STDERR_FILENO, POLLOUT, 0});
  for (const Source& source : sources_) wanted.push_back({source.descriptor, POLLIN, 0});
}

bool ErrorLines::pass_on() {
  bool any = false;
  if (unsent_.empty())
    for (Source& source : sources_) any = read(source) || any;
  std::erase_if(sources_, [](const Source& source) { return source.descriptor < 0; });
  // A pipe that is ready takes so many bytes without a wait.
  while (!unsent_.empty() && takes_more()) {
    const ssize_t put = ::write(STDERR_FILENO, unsent_.data(), std::min(unsent_.size(), kBlock));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) break;
    unsent_.erase(0, put < 0 ? unsent_.size() : static_cast<size_t>(put));  // nobody reads it: it is lost
  }
  return any && unsent_.empty();
}

bool ErrorLines::read(Source& source) {
  char block[kBlock];
  ssize_t got;
  do got = ::read(source.descriptor, block, sizeof block);
  while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return false;
  for (ssize_t i = 0; i < got; ++i) take(source, block[i]);
  if (got > 0) return true;
  if (!source.line.empty()) take(source, '\n');
  ::close(source.descriptor);
  source.descriptor = -1;
  return false;
}

/// A carriage return begins a line, too: bars of progress come out one below the other.
void ErrorLines::take(Source& source, char byte) {
  const bool ends = byte == '\n' || byte == '\r';
  if (!ends) source.line += byte;
  const bool ended_before = std::exchange(source.returned, byte == '\r') || byte == '\r';
  if (ends && ended_before && source.line.empty()) return;
  // Not in the middle of a character of UTF-8.
  const bool whole = (static_cast<unsigned char>(byte) & 0xc0) != 0x80;
  if (!ends && (source.line.size() < kLongestLine || !whole)) return;
  unsent_ += printable(source.line) + "\n";
  source.line.clear();
}

}  // namespace temper
