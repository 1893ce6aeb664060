#include "src/core/text/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace temper {
namespace {

constexpr size_t kMaxLength = 64;  // a longer name is no misspelling; bounds the work
constexpr size_t kMaxShown = 3;

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

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

std::vector<std::string> nearest_names(std::string_view name, const std::vector<std::string>& known) {
  if (name.empty() || name.size() > kMaxLength) return {};
  const size_t limit =
      (last_part(name).size() + 2) / 3;  // sections are mostly right: they allow no more errors
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& candidate : known) {
    // The right key in the wrong section is as likely as a misspelling.
    const bool same_key = candidate != name && last_part(candidate) == last_part(name);
    const size_t distance = same_key ? 0 : edit_distance(name, candidate);
    const bool beginning = candidate.starts_with(name) || name.starts_with(candidate);
    if (beginning || distance <= limit) ranked.emplace_back(distance, candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (ranked.size() > kMaxShown) ranked.resize(kMaxShown);
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : ranked) names.push_back(candidate);
  return names;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known,
                         std::string_view before, std::string_view after) {
  const std::vector<std::string> names = nearest_names(name, known);
  if (names.empty()) return {};
  std::string text = std::string(before) + "did you mean ";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += "`" + names[i] + "`";
  }
  return text.append("?").append(after);
}

}  // namespace temper
