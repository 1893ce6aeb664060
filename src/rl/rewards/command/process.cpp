#include "src/rl/rewards/command/process.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>

#include "src/core/check.h"

namespace temper {
namespace {

constexpr size_t kMaxParts = 64, kMaxPartName = 100;

/// The start of a line, for a message.
std::string shown(std::string_view line) {
  return dump_json_line(std::string(line.substr(0, 120))) + (line.size() > 120 ? "..." : "");
}

bool is_number(const Json& value) { return value.is_number() && std::isfinite(value.get<double>()); }

/// What is wrong with an answer; fills the verdict.
std::string read_verdict(const Json& line, Verdict& verdict) {
  const auto reward = line.find("reward");
  if (reward == line.end() || !is_number(*reward)) return "\"reward\" is no finite number";
  verdict.value = reward->get<double>();
  const auto parts = line.find("parts");
  if (parts == line.end() || parts->is_null()) return "";
  if (!parts->is_object() || parts->size() > kMaxParts)
    return fmt::format("\"parts\" is no object of at most {} numbers", kMaxParts);
  for (const auto& [name, value] : parts->items()) {
    if (name.empty() || name.size() > kMaxPartName || !is_number(value))
      return "a part is no finite number, or has no name of 1 to 100 bytes";
    verdict.parts.emplace_back(name, value.get<double>());
  }
  return "";
}

}  // namespace

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
    if (open.empty()) return nonsense(fmt::format("it wrote without being asked: {}", shown(bytes)));
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
  if (line.is_discarded()) return nonsense(fmt::format("no line of JSON: {}", shown(text)));
  const auto id = line.is_object() ? line.find("id") : line.end();
  if (id == line.end() || !id->is_number_integer())
    return nonsense(fmt::format("an answer without \"id\": {}", shown(text)));
  const auto call = open.find(id->get<int64_t>());
  if (call == open.end()) return nonsense(fmt::format("an id that is not open: {}", shown(text)));
  CommandAnswer answer;
  if (const std::string wrong = read_verdict(line, answer.verdict); !wrong.empty())
    return nonsense(fmt::format("{}: {}", wrong, shown(text)));
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
