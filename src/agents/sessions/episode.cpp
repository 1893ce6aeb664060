#include "src/agents/sessions/episode.h"

#include <cmath>
#include <optional>

#include "src/core/check.h"
#include "src/core/digest/hash.h"

namespace temper {
namespace {

constexpr int64_t kMostBytes = 1 << 20;  // of a line
constexpr size_t kMostParts = 256;

std::optional<double> finite_number(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

bool read_parts(const Json& parts, SessionEnd& end) {
  if (!parts.is_object() || parts.size() > kMostParts) return false;
  for (const auto& [name, value] : parts.items()) {
    const auto number = finite_number(value);
    if (!number) return false;
    end.parts.emplace_back(name, *number);
  }
  return true;
}

}  // namespace

uint32_t episode_seed(uint64_t run_seed, int64_t data_position, int32_t sample) {
  const std::string text = fmt::format("episode {} {} {}", run_seed, data_position, sample);
  const std::string digest = digest_hex(text.data(), std::ssize(text));
  return static_cast<uint32_t>(std::stoul(digest.substr(0, 8), nullptr, 16));
}

std::string start_line(const EpisodeStart& start) {
  return dump_json_line({{"id", start.id},
                         {"record", start.record},
                         {"seed", start.seed},
                         {"base_url", start.url + "/v1"},
                         {"anthropic_base_url", start.url},
                         {"api_key", start.key},
                         {"model", "policy"}});
}

std::vector<std::pair<std::string, std::string>> start_variables(const EpisodeStart& start) {
  return {{"OPENAI_BASE_URL", start.url + "/v1"},
          {"OPENAI_API_KEY", start.key},
          {"OPENAI_MODEL", "policy"},
          {"ANTHROPIC_BASE_URL", start.url},
          {"ANTHROPIC_API_KEY", start.key},
          {"ANTHROPIC_MODEL", "policy"},
          {"ANTHROPIC_SMALL_FAST_MODEL", "policy-untrained"},
          {"ANTHROPIC_DEFAULT_HAIKU_MODEL", "policy-untrained"}};
}

SessionEnd end_line(std::string_view line) {
  const SessionEnd nonsense{.reason = EndReason::nonsense};
  Json said;
  try {
    said = parse_json(line, "last line of a program", {.bytes = kMostBytes});
  } catch (const Error&) {
    return nonsense;
  }
  if (!said.is_object()) return nonsense;
  SessionEnd end;
  if (const auto reward = said.find("reward"); reward != said.end() && !reward->is_null()) {
    end.reward = finite_number(*reward);
    if (!end.reward) return nonsense;
  }
  const auto parts = said.find("parts");
  const bool none = parts == said.end() || parts->is_null();
  return none || read_parts(*parts, end) ? end : nonsense;
}

}  // namespace temper
