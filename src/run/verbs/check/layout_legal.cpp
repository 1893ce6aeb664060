#include "src/run/verbs/check/layout_legal.h"

#include <algorithm>
#include <array>

#include "src/config/load.h"
#include "src/core/check.h"

namespace temper {
namespace {

/// A number that every rule of its own takes and no plan does: the plan then names those that it takes.
constexpr const char* kTooMany = "2147483647";

bool is_layout(const std::string& key) {
  constexpr std::array<std::string_view, 4> kNames{".tp", ".cp", ".pp", ".vpp"};
  return key.starts_with("roles.") && std::any_of(kNames.begin(), kNames.end(),
                                                  [&](std::string_view name) { return key.ends_with(name); });
}

}  // namespace

void add_legal_layouts(const std::string& config_file, const std::vector<std::string>& overrides,
                       std::vector<ConfigError>& errors,
                       const std::function<std::vector<ConfigError>(const Config&)>& plan_errors) {
  std::vector<std::string> words = overrides;
  for (const ConfigError& error : errors) {
    if (!is_layout(error.key)) return;
    words.push_back(fmt::format("{}={}", error.key, kTooMany));
  }
  const ConfigReading reading = read_config(config_file, words);
  if (!reading.errors.empty()) return;
  for (ConfigError& planned : plan_errors(reading.loaded.config))
    for (ConfigError& error : errors)
      if (error.key == planned.key && !planned.legal.empty()) error.legal = std::move(planned.legal);
}

}  // namespace temper
