#include "src/config/nearest.h"

#include <algorithm>
#include <numeric>

namespace temper {
namespace {

constexpr size_t kMaxLength = 64;  // a longer name is no misspelling; bounds the work
constexpr size_t kMaxShown = 3;

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

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
