#include "src/config/typed/refusals.h"

#include <algorithm>

#include "src/config/sets/read_lists.h"
#include "src/core/check.h"

namespace temper {
namespace {

Json number_json(double value, bool whole) { return whole ? Json(static_cast<int64_t>(value)) : Json(value); }

}  // namespace

BadValue Refusals::illegal(const TomlNode& node, std::vector<Json> legal) const {
  return because(fmt::format("{} is not legal here; legal: {}", shown(node), rule_text(field_)),
                 std::move(legal));
}

BadValue Refusals::wrong_type(const TomlNode& node, std::vector<Json> legal) const {
  return because(fmt::format("{} is {}; legal: {}", shown(node), kind_name(node.kind), rule_text(field_)),
                 std::move(legal));
}

std::vector<Json> Refusals::numbers(bool whole, double value) const {
  return node_.kind == TomlNode::Kind::array || is_list() ? std::vector<Json>{field_json(field_)}
                                                          : proposals(whole, value);
}

std::vector<Json> Refusals::choices() const {
  std::vector<Json> legal(spec_.choices.begin(), spec_.choices.end());
  for (Json& word : legal) word = is_list() ? Json::array({word}) : word;
  return legal;
}

std::vector<Json> Refusals::texts() const {
  const Json standard = field_json(field_);
  if (standard.is_array() || (standard.is_string() && !standard.get_ref<const std::string&>().empty()))
    return {standard};
  return spec_.example.is_null() ? std::vector<Json>{} : std::vector<Json>{spec_.example};
}

/// Legal values to propose: the default (or its word), the example, and the end of the range nearest to
/// `value`.
std::vector<Json> Refusals::proposals(bool whole, double value) const {
  std::vector<Json> legal;
  const auto add = [&](const Json& candidate) {
    if (!candidate.is_null() && std::find(legal.begin(), legal.end(), candidate) == legal.end())
      legal.push_back(candidate);
  };
  const Json current = field_json(field_);
  if (spec_.count == 0 && current.is_number() && spec_.needed == Needed::no) add(current);
  if (!spec_.absent.empty()) add(std::string(spec_.absent));
  add(spec_.example);
  const bool few = whole && spec_.range.high - spec_.range.low < 8;
  for (double n = spec_.range.low; few && n <= spec_.range.high; ++n) add(number_json(n, true));
  if (value <= spec_.range.low && !spec_.range.above_low) add(number_json(spec_.range.low, whole));
  if (value >= spec_.range.high && !spec_.range.below_high && spec_.range.high < 1e300)
    add(number_json(spec_.range.high, whole));
  if (legal.empty()) add(number_json(spec_.range.low, whole));
  return legal;
}

bool Refusals::is_list() const {
  return std::holds_alternative<std::vector<std::string>*>(field_.target) ||
         std::holds_alternative<std::vector<int64_t>*>(field_.target) ||
         std::holds_alternative<std::vector<double>*>(field_.target);
}

}  // namespace temper
