#include "src/rl/rewards/command/process.h"

#include <unistd.h>

#include <cerrno>

#include "src/core/check.h"
#include "src/rl/rewards/verdict_line.h"

namespace temper {

void CommandProcess::ask(int64_t id, std::shared_ptr<CommandCall> call) {
  call->request["id"] = id;
  unsent_.add(dump_json_line(call->request) + "\n");
  open[id] = {std::move(call), Clock::now(), !answered_};
}

void CommandProcess::write() { unsent_.write(program.input); }

bool CommandProcess::read() {
  char block[1 << 16];
  while (true) {
    const ssize_t got = ::read(program.output, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) {
      failure = CommandFailure::died;
      why = "the program has ended or closed its stdout";
      return false;
    }
    if (!take({block, static_cast<size_t>(got)})) return false;
  }
}

bool CommandProcess::take(std::string_view bytes) {
  while (!bytes.empty()) {
    if (open.empty()) return nonsense(fmt::format("it wrote without being asked: {}", shown_line(bytes)));
    const size_t end = bytes.find('\n');
    unread_.append(bytes.substr(0, end));
    if (unread_.size() > kMaxLine) return nonsense(fmt::format("a line of more than {} bytes", kMaxLine));
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    const bool taken = take_line(unread_);
    unread_.clear();
    if (!taken) return false;
  }
  return true;
}

bool CommandProcess::take_line(std::string_view text) {
  const Json line = Json::parse(text, /*callback=*/nullptr, /*allow_exceptions=*/false);
  if (line.is_discarded()) return nonsense(fmt::format("no line of JSON: {}", shown_line(text)));
  const auto id = line.is_object() ? line.find("id") : line.end();
  if (id == line.end() || !id->is_number_integer())
    return nonsense(fmt::format("an answer without \"id\": {}", shown_line(text)));
  const auto call = open.find(id->get<int64_t>());
  if (call == open.end()) return nonsense(fmt::format("an id that is not open: {}", shown_line(text)));
  CommandAnswer answer;
  if (const std::string wrong = read_verdict(line, /*needed=*/true, answer.verdict); !wrong.empty())
    return nonsense(fmt::format("{}: {}", wrong, shown_line(text)));
  const std::chrono::duration<double> took = Clock::now() - call->second.since;
  double& longest = call->second.at_start ? longest_start : longest_answer;
  longest = std::max(longest, took.count());
  answered_ = true;
  call->second.call->answer.set_value(std::move(answer));
  open.erase(call);
  return true;
}

bool CommandProcess::nonsense(std::string reason) {
  failure = CommandFailure::nonsense;
  why = std::move(reason);
  return false;
}

}  // namespace temper
