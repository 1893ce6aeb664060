#include "src/rl/choices.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/core/check.h"

namespace temper {
namespace {

constexpr size_t kMaxNameLength = 64;  // longer names are no misspelling; bounds the work

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

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
