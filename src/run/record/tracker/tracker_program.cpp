#include "src/run/record/tracker/tracker_program.h"

#include <unistd.h>

#include <cerrno>

#include "src/core/check.h"

namespace temper {

void TrackerProgram::write() {
  if (input_closed())
    unsent_ = {};
  else
    unsent_.write(program.input);
}

void TrackerProgram::close_input() {
  if (!input_closed()) ::close(program.input);
  program.input = -1;
}

TrackerProgram::Said TrackerProgram::read(std::vector<Json>& answers) {
  char block[1 << 14];
  while (answers.size() < kMaxAnswers) {
    const ssize_t got = ::read(program.output, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Said::lines;
    if (got <= 0) return Said::end;
    unread_.append(block, static_cast<size_t>(got));
    for (size_t end; (end = unread_.find('\n')) != std::string::npos; unread_.erase(0, end + 1)) {
      Json line = Json::parse(unread_.substr(0, end), nullptr, /*allow_exceptions=*/false);
      if (!line.is_object()) {
        why = "no line of JSON: " + dump_json_line(unread_.substr(0, std::min<size_t>(end, 120)));
        return Said::nonsense;
      }
      answers.push_back(std::move(line));
    }
    if (unread_.size() <= kMaxLine) continue;
    why = fmt::format("a line of more than {} bytes", kMaxLine);
    return Said::nonsense;
  }
  return Said::lines;
}

}  // namespace temper
