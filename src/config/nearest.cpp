#include "src/config/nearest.h"

#include <algorithm>

#include "src/core/edit_distance.h"

namespace temper {
namespace {

constexpr size_t kMaxLength = 64;  // a longer name is no misspelling; bounds the work
constexpr size_t kMaxShown = 3;

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& known) {
  if (name.empty() || name.size() > kMaxLength) return {};
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& candidate : known) {
    // The right key in the wrong section is as likely as a misspelling.
    const bool same_key = candidate != name && last_part(candidate) == last_part(name);
    const size_t distance = same_key ? 0 : edit_distance(name, candidate);
    if (distance <= std::max<size_t>(2, name.size() / 4)) ranked.emplace_back(distance, candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : ranked)
    if (names.size() < kMaxShown) names.push_back(candidate);
  return names;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::vector<std::string> names = nearest(name, known);
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += "`" + names[i] + "`";
  }
  return text.empty() ? text : "; did you mean " + text + "?";
}

}  // namespace temper
