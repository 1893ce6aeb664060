#include "src/rl/rewards/math/value.h"

#include <algorithm>
#include <numeric>

#include "src/rl/rewards/math/parser.h"
#include "src/rl/rewards/text.h"

namespace temper {
namespace {

constexpr size_t kMostTokens = 1024;

/// `y = 9, x = 4` in the order of the names.
void sort_by_name(std::vector<MathItem>& items) {
  std::vector<std::string> names;
  for (const MathItem& item : items) names.push_back(item.name);
  std::sort(names.begin(), names.end());
  const bool distinct = std::adjacent_find(names.begin(), names.end()) == names.end();
  if (!distinct || names[0].empty()) return;
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
}

MathValue value_of(const MathTokens& tokens, bool plus) {
  MathParser parser(tokens, plus);
  MathList list = parser.whole();
  sort_by_name(list.items);
  MathValue value;
  value.unordered = list.choice;
  const std::vector<Sum>* elements =
      list.items.size() == 1 ? parser.groups().set_elements(list.items[0].sum) : nullptr;
  if (elements) {
    value.unordered = true;
    for (const Sum& element : *elements) value.parts.push_back(element.key());
    return value;
  }
  for (const MathItem& item : list.items) {
    value.parts.push_back(item.sum.key());
    value.names.push_back(item.name);
  }
  if (list.items.size() == 1) value.number = list.items[0].sum.number();
  return value;
}

std::vector<std::string> as_set(std::vector<std::string> parts) {
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  return parts;
}

}  // namespace

std::optional<MathValue> math_value(const MathTokens& tokens) {
  if (tokens.size() > kMostTokens) return std::nullopt;
  try {
    MathValue value = value_of(tokens, /*plus=*/true);
    if (!contains(tokens, "\\pm") && !contains(tokens, "\\mp")) return value;
    const MathValue other = value_of(tokens, /*plus=*/false);
    value.parts.insert(value.parts.end(), other.parts.begin(), other.parts.end());
    return MathValue{.parts = std::move(value.parts), .names = {}, .unordered = true, .number = {}};
  } catch (const NoValue&) {
    return std::nullopt;
  }
}

bool values_equal(const MathValue& a, const MathValue& b) {
  if (a.unordered || b.unordered) return as_set(a.parts) == as_set(b.parts);
  if (a.parts != b.parts) return false;
  for (size_t i = 0; i < a.names.size(); ++i)
    if (!a.names[i].empty() && !b.names[i].empty() && a.names[i] != b.names[i]) return false;
  return true;
}

}  // namespace temper
