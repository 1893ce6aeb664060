#include "src/rl/choices.h"

#include <algorithm>
#include <utility>

#include "src/core/check.h"
#include "src/core/edit_distance.h"

namespace temper {
namespace {

constexpr size_t kMaxNameLength = 64;  // longer names are no misspelling; bounds the work

template <typename Names>
std::string join(const Names& names, std::string_view separator) {
  std::string text;
  for (const auto& name : names) {
    if (!text.empty()) text += separator;
    text += name;
  }
  return text;
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string_view> legal) {
  std::vector<std::string> names;
  if (name.empty() || name.size() > kMaxNameLength) return names;
  std::vector<std::pair<size_t, std::string_view>> ranked;
  for (std::string_view candidate : legal) {
    size_t distance = edit_distance(name, candidate);
    bool prefix = candidate.starts_with(name) || name.starts_with(candidate);
    if (prefix || distance <= (name.size() + 2) / 3) ranked.emplace_back(distance, candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& entry : ranked) names.emplace_back(entry.second);
  return names;
}

std::string suggest_names(std::string_view name, std::span<const std::string_view> legal) {
  std::string text;
  std::vector<std::string> near = nearest_names(name, legal);
  if (!near.empty()) text = "did you mean `" + join(near, "` or `") + "`? ";
  return text + "legal: " + (legal.empty() ? "none" : join(legal, ", "));
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
