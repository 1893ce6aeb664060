#include "src/core/process/results.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "src/core/check.h"

namespace temper {
namespace {

/// There is one stdout.
std::atomic<int64_t>& written() {
  static std::atomic<int64_t> bytes = 0;
  return bytes;
}

[[noreturn]] void fail_stdout(int error) {
  fail(Exit::storage,
       {.what = "the results cannot be written",
        .where = "stdout",
        .why = fmt::format("{}, after {} bytes", std::strerror(error), written().load()),
        .fix = "make room where stdout goes, or send it elsewhere, and run the same command again"});
}

}  // namespace

void write_results(std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(STDOUT_FILENO, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EPIPE) return;
    if (put < 0 && errno == EAGAIN) {  // the reader's side made it so
      pollfd room{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&room, 1, -1);
      continue;
    }
    if (put < 0) fail_stdout(errno);
    written() += put;
    text.remove_prefix(static_cast<size_t>(put));
  }
}

void finish_results() {
  if (written() == 0) return;
  const int copy = ::dup(STDOUT_FILENO);  // whatever ends later may still find stdout
  if (copy < 0 || ::close(copy) != 0) fail_stdout(errno);
}

}  // namespace temper
