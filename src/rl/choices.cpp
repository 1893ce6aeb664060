#include "src/rl/choices.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/text/nearest.h"

namespace temper {

std::string suggest_names(std::string_view name, std::span<const std::string_view> legal) {
  const std::vector<std::string> names(legal.begin(), legal.end());
  return did_you_mean(name, names, "", " ") +
         fmt::format("legal: {}", names.empty() ? "none" : fmt::to_string(fmt::join(names, ", ")));
}

size_t choice_index(const std::string& key, std::string_view name, std::span<const std::string_view> legal) {
  auto found = std::find(legal.begin(), legal.end(), name);
  if (found == legal.end()) {
    fail(Exit::usage, {.what = fmt::format("illegal value of {}", key),
                       .where = key,
                       .why = fmt::format("\"{}\" is not one of its values", name),
                       .fix = suggest_names(name, legal)});
  }
  return static_cast<size_t>(found - legal.begin());
}

}  // namespace temper
