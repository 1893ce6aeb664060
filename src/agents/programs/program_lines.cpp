#include "src/agents/programs/program_lines.h"

#include <algorithm>

#include "src/core/check.h"

namespace temper {
namespace {

constexpr int kDeepest = 64;

bool is_too_deep(std::string_view line) {
  int depth = 0;
  bool text = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (text && c == '\\')
      ++i;
    else if (c == '"')
      text = !text;
    else if (!text && (c == '[' || c == '{') && ++depth > kDeepest)
      return true;
    else if (!text && (c == ']' || c == '}'))
      --depth;
  }
  return false;
}

}  // namespace

Json start_json(const HarnessStart& start, bool service) {
  Json line{{"id", start.id},
            {"record", start.record},
            {"seed", start.seed},
            {"base_url", start.base_url},
            {"anthropic_base_url", start.anthropic_base_url},
            {"api_key", start.api_key},
            {"model", start.model}};
  if (service) line["reward_key"] = start.reward_key;
  return line;
}

std::optional<Json> read_line(std::string_view line) {
  if (is_too_deep(line)) return std::nullopt;
  Json read = Json::parse(line, /*callback=*/nullptr, /*allow_exceptions=*/false);
  if (!read.is_object()) return std::nullopt;  // discarded, too
  return read;
}

std::string read_reward(const Json& line, SessionEnd& end) {
  Verdict verdict;
  std::string wrong = read_verdict(line, /*needed=*/false, verdict);
  end.reward = verdict.value;
  end.parts = std::move(verdict.parts);
  return wrong;
}

std::string read_last_line(std::string_view line, bool whole, SessionEnd& end) {
  const bool speaks = line.starts_with('{') && line.find("\"reward\"") != std::string_view::npos;
  if (!speaks) return "";
  if (!whole) return fmt::format("its last line has more than {} bytes", kMaxHarnessLine);
  const std::optional<Json> read = read_line(line);
  if (!read) return "its last line is no line of JSON: " + shown_line(line);
  if (!read->contains("reward")) return "";
  const std::string wrong = read_reward(*read, end);
  return wrong.empty() ? "" : wrong + ": " + shown_line(line);
}

std::string read_turn(const Json& line, Json& messages) {
  if (const auto said = line.find("observation"); said != line.end()) {
    if (!said->is_string()) return "\"observation\" is no text";
    messages = Json::array({{{"role", "user"}, {"content", *said}}});
    return "";
  }
  const auto given = line.find("messages");
  if (given == line.end()) return "neither an observation, nor messages, nor done";
  const bool objects = given->is_array() && !given->empty() &&
                       std::all_of(given->begin(), given->end(), [](const Json& m) { return m.is_object(); });
  if (!objects) return "\"messages\" is no list of objects";
  messages = *given;
  return "";
}

}  // namespace temper
