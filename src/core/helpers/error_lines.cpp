#include "src/core/helpers/error_lines.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "src/core/text/printable.h"

namespace temper {
namespace {

constexpr size_t kLongestLine = 1000;  // a longer one comes out in pieces
constexpr size_t kLongestText = 16'384, kKnownTexts = 64;
constexpr std::chrono::milliseconds kPause{100};

/// "ValueError: x": what a traceback ends with.
std::string last_line(std::string_view text) {
  constexpr size_t kShown = 120;
  text.remove_suffix(1);
  const size_t begin = text.rfind('\n') + 1;  // 0 where there is none
  return std::string(text.substr(begin, kShown));
}

std::string count_text(int64_t times, const std::string& text) {
  return "temper: a program's text on stderr came " + std::to_string(times) +
         " times, it is said once: " + last_line(text) + "\n";
}

bool is_power_of_ten(int64_t n) {
  while (n % 10 == 0) n /= 10;
  return n == 1;
}

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

int ErrorLines::patience(int most) const {
  const bool begun = std::any_of(sources_.begin(), sources_.end(),
                                 [](const Source& source) { return !source.text.empty(); });
  return begun ? static_cast<int>(kPause.count()) : most;
}

bool ErrorLines::pass_on() {
  bool any = false;
  if (unsent_.empty())
    for (Source& source : sources_) {
      any = read(source) || any;
      const bool paused = std::chrono::steady_clock::now() - source.last >= kPause;
      if (source.descriptor < 0 || paused) say(std::exchange(source.text, {}));
    }
  std::erase_if(sources_, [](const Source& source) { return source.descriptor < 0; });
  send();
  return any && unsent_.empty();
}

/// A pipe that is ready takes so many bytes without a wait.
void ErrorLines::send() {
  while (!unsent_.empty() && takes_more()) {
    const ssize_t put = ::write(STDERR_FILENO, unsent_.data(), std::min(unsent_.size(), kBlock));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) break;
    unsent_.erase(0, put < 0 ? unsent_.size() : static_cast<size_t>(put));  // nobody reads it: it is lost
  }
}

void ErrorLines::finish() {
  for (Source& source : sources_) say(std::exchange(source.text, {}));
  for (const Said& said : said_)
    if (said.times > 1 && !is_power_of_ten(said.times)) unsent_ += count_text(said.times, said.text);
  send();
}

void ErrorLines::say(std::string text) {
  if (text.empty()) return;
  const auto known =
      std::find_if(said_.begin(), said_.end(), [&](const Said& said) { return said.text == text; });
  if (known != said_.end()) {
    ++known->times;
    if (is_power_of_ten(known->times)) unsent_ += count_text(known->times, text);
    return;
  }
  if (said_.size() == kKnownTexts) {
    const Said& oldest = said_.front();
    if (oldest.times > 1 && !is_power_of_ten(oldest.times)) unsent_ += count_text(oldest.times, oldest.text);
    said_.pop_front();
  }
  unsent_ += text;
  said_.push_back({std::move(text)});
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
  source.text += printable(source.line) + "\n";
  source.line.clear();
  source.last = std::chrono::steady_clock::now();
  if (source.text.size() >= kLongestText) say(std::exchange(source.text, {}));
}

}  // namespace temper
