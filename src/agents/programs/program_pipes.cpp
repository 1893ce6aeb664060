#include "src/agents/programs/program_pipes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/agents/programs/harness.h"
#include "src/core/text/printable.h"

namespace temper {
namespace {

constexpr size_t kRound = size_t{1} << 20, kBlock = size_t{1} << 16, kErrorsKept = 4096;

/// Bytes read; 0: the end; -1: nothing now.
ssize_t read_some(int descriptor, char* bytes, size_t size) {
  ssize_t got;
  do got = ::read(descriptor, bytes, size);
  while (got < 0 && errno == EINTR);
  return got < 0 && errno != EAGAIN ? 0 : got;
}

void close_end(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

}  // namespace

void ProgramPipes::add_to(std::vector<pollfd>& waits) const {
  if (program.input >= 0 && unsent_.any()) waits.push_back({program.input, POLLOUT, 0});
  if (!silent_) waits.push_back({program.output, POLLIN, 0});
  if (program.errors >= 0) waits.push_back({program.errors, POLLIN, 0});
  if (!exited_) waits.push_back({program.exited, POLLIN, 0});
}

void ProgramPipes::move() {
  if (program.input >= 0) unsent_.write(program.input);
  if (ends_input_ && !unsent_.any()) close_end(program.input);
  read_errors();
  int status = 0;
  if (exited_) return;
  const ssize_t got = read_some(program.exited, reinterpret_cast<char*>(&status), sizeof status);
  if (got >= 0) exited_ = got == sizeof status ? status : -1;
}

void ProgramPipes::read_errors() {
  char block[kBlock];
  for (size_t all = 0; program.errors >= 0 && all < kRound;) {
    const ssize_t got = read_some(program.errors, block, sizeof block);
    if (got < 0) return;
    if (got == 0) return close_end(program.errors);
    all += static_cast<size_t>(got);
    errors_.append(block, static_cast<size_t>(got));
    if (errors_.size() > kErrorsKept) errors_.erase(0, errors_.size() - kErrorsKept);
  }
}

void ProgramPipes::read_lines(const std::function<bool(std::string_view, bool)>& on_line) {
  char block[kBlock];
  for (size_t all = 0; !silent_ && all < kRound;) {
    const ssize_t got = read_some(program.output, block, sizeof block);
    if (got < 0) break;
    silent_ = got == 0;
    all += static_cast<size_t>(got);
    if (!take({block, static_cast<size_t>(got)}, on_line)) return;
  }
  if ((silent_ || exited_) && (!line_.empty() || too_long_)) take("\n", on_line);
}

bool ProgramPipes::take(std::string_view bytes, const std::function<bool(std::string_view, bool)>& on_line) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (!too_long_) line_.append(bytes.substr(0, end));
    too_long_ = too_long_ || line_.size() > kMaxHarnessLine;
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    const bool more = on_line(line_, !too_long_);
    line_.clear();
    too_long_ = false;
    if (!more) return false;
  }
  return true;
}

std::string ProgramPipes::ending() const {
  if (!exited_) return "it has closed its stdout";
  if (*exited_ < 0) return "it was ended from outside";
  if (WIFEXITED(*exited_)) return fmt::format("it exited with {}", WEXITSTATUS(*exited_));
  return fmt::format("signal {} ({}) ended it", WTERMSIG(*exited_), ::strsignal(WTERMSIG(*exited_)));
}

std::string ProgramPipes::last_words() const {
  constexpr size_t kShown = 600, kLines = 5;
  std::string_view text = errors_;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  size_t begin = text.size();
  for (size_t lines = 0; lines < kLines && begin > 0; ++lines) {
    const size_t before = text.rfind('\n', begin - 1);
    begin = before == std::string_view::npos ? 0 : before;
  }
  text.remove_prefix(std::max(begin, text.size() - std::min(text.size(), kShown)));
  while (!text.empty() && (static_cast<unsigned char>(text.front()) & 0xc0) == 0x80) text.remove_prefix(1);
  if (!text.empty() && text.front() == '\n') text.remove_prefix(1);
  return text.empty() ? "" : ": " + printable(text);
}

void end_program(Helpers& helpers, HelperProgram& program) {
  if (helpers.end(program)) return;
  throw KeeperLost({.what = "the keeper of the programs has ended",
                    .where = "rollout.harness",
                    .why = "it was killed, by hand or for want of memory (see dmesg), and they with it",
                    .fix = "start the run again"});
}

}  // namespace temper
