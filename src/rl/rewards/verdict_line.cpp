#include "src/rl/rewards/verdict_line.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>

namespace temper {
namespace {

constexpr size_t kMaxParts = 64, kMaxPartName = 100;

bool is_number(const Json& value) { return value.is_number() && std::isfinite(value.get<double>()); }

}  // namespace

std::string read_verdict(const Json& object, bool needed, Verdict& verdict) {
  const auto reward = object.find("reward");
  const bool absent = reward == object.end() || reward->is_null();
  if (absent ? needed : !is_number(*reward))
    return needed ? "\"reward\" is no finite number" : "\"reward\" is no finite number and not null";
  if (!absent) verdict.value = reward->get<double>();
  const auto parts = object.find("parts");
  if (parts == object.end() || parts->is_null()) return "";
  if (!parts->is_object() || parts->size() > kMaxParts)
    return fmt::format("\"parts\" is no object of at most {} numbers", kMaxParts);
  for (const auto& [name, value] : parts->items()) {
    if (name.empty() || name.size() > kMaxPartName || !is_number(value))
      return fmt::format("a part is no finite number, or has no name of 1 to {} bytes", kMaxPartName);
    verdict.parts.emplace_back(name, value.get<double>());
  }
  return "";
}

std::string shown_line(std::string_view line) {
  constexpr size_t kShown = 120;
  return dump_json_line(std::string(line.substr(0, kShown))) + (line.size() > kShown ? "..." : "");
}

}  // namespace temper
