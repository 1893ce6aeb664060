#include "src/config/sets/read_lists.h"

#include <algorithm>
#include <cmath>

#include "src/config/section.h"
#include "src/config/values.h"
#include "src/core/check.h"
#include "src/core/rng.h"
#include "src/core/text/nearest.h"

namespace temper {
namespace {

using Kind = TomlNode::Kind;
constexpr size_t kMaxShown = 60;

/// The fields of a set that are read as keys of a config are; they point into it.
std::vector<Field> fields_of(ValidationSet& set) {
  std::vector<Field> fields;
  Section f("set", fields);
  f("name", set.name, {.help = "", .format = Format::folder_name, .example = "test"});
  f("path", set.path, {.help = "", .format = Format::not_empty});
  f("weight", set.weight, {.help = "", .range = {0, 1e6, true}});
  f("samples_per_prompt", set.samples_per_prompt, {.help = "", .range = {1, SampleKey::kMaxSample}});
  f("rewards", set.rewards, {.help = ""});
  override_fields(set.rollout, Section("set.rollout", fields));
  return fields;
}

/// Reads the keys of a table, `prefix` before each, which is `what` ("a set").
std::string read_keys(const TomlNode& table, const std::string& prefix, const std::vector<Field>& fields,
                      std::string_view what) {
  for (const auto& [key, value] : table.table) {
    const std::string name = prefix + key;
    if (name == "set.rollout" && value.kind == Kind::table) {
      if (std::string why = read_keys(value, name + ".", fields, what); !why.empty()) return why;
      continue;
    }
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.key == name; });
    std::vector<std::string> known;
    if (prefix == "set.") known.emplace_back("rollout");
    for (const Field& f : fields)
      if (f.key.starts_with(prefix) && f.key.find('.', prefix.size()) == std::string::npos)
        known.push_back(f.key.substr(prefix.size()));
    if (field == fields.end())
      return fmt::format("`{}` is no key of {}{}", key, what, did_you_mean(key, known));
    if (auto bad = read_value(value, *field)) return fmt::format("`{}`: {}", key, bad->message);
  }
  return "";
}

std::string read_harness(const TomlNode& node, HarnessConfig& harness) {
  constexpr size_t kMostBytes = size_t{32} << 10;
  if (node.kind != Kind::table) return fmt::format("{} is {}, no table", shown(node), kind_name(node.kind));
  if (std::string why = read_keys(node, "harness.", harness_fields(harness), "a program"); !why.empty())
    return why;
  size_t bytes = 0;
  for (const std::string& word : harness.argv) bytes += word.size() + 1;
  for (const auto& [name, value] : harness.env) bytes += name.size() + value.size() + 2;
  if (bytes > kMostBytes) return fmt::format("argv and env have {} bytes, at most {}", bytes, kMostBytes);
  return harness.argv.empty() ? "a program has no argv" : "";
}

}  // namespace

std::vector<const TomlNode*> items_of(const TomlNode& node) {
  if (node.kind != Kind::array) return {&node};
  std::vector<const TomlNode*> items;
  for (const TomlNode& item : node.items) items.push_back(&item);
  return items;
}

std::string shown(const TomlNode& node) {
  std::string text = toml_text(node_json(node));
  if (node.kind == Kind::real && !std::isfinite(node.real)) text = std::isnan(node.real) ? "nan" : "inf";
  if (text.size() <= kMaxShown) return text;
  size_t end = kMaxShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;  // no half character
  return text.substr(0, end) + "...";
}

std::string read_function(const TomlNode& node, RewardFunctionConfig& function) {
  if (node.kind == Kind::text) {
    function.name = node.text;
    return function.name.empty() ? "a function has an empty name" : "";
  }
  if (node.kind != Kind::table)
    return fmt::format("{} is {}, no name or table", shown(node), kind_name(node.kind));
  for (const auto& [key, value] : node.table) {
    const bool number = value.kind == Kind::integer || value.kind == Kind::real;
    const double real = value.kind == Kind::real ? value.real : static_cast<double>(value.integer);
    const auto list = text_items(value);
    if (number && !std::isfinite(real)) return fmt::format("`{}` = {} is not finite", key, shown(value));
    if ((key == "name" || key == "as") && value.kind == Kind::text)
      (key == "name" ? function.name : function.as) = value.text;
    else if (key == "weight" && number)
      function.weight = real;
    else if (key == "domains" && list && !list->empty())
      function.domains = *list;
    else if (key == "domains" || key == "as")
      return fmt::format("`{}` = {} is no {}", key, shown(value),
                         key == "as" ? "name" : "list of domains such as [\"math\"]");
    else if (list && key != "name" && key != "weight")
      function.lists[key] = *list;
    else if (key == "name" || key == "weight" || (!number && value.kind != Kind::text))
      return fmt::format("`{}` = {} is {}", key, shown(value), kind_name(value.kind));
    else if (number)
      function.numbers[key] = real;
    else
      function.strings[key] = value.text;
  }
  const bool unusual = function.as.size() > 100 || function.as.find('/') != std::string::npos;
  if (unusual) return fmt::format("`as` = \"{}\" is no name: at most 100 bytes without '/'", function.as);
  return function.name.empty() ? "a function has no name" : "";
}

std::string read_set(const TomlNode& node, ValidationSet& set) {
  if (node.kind == Kind::text)
    set.path = node.text;
  else if (node.kind != Kind::table)
    return fmt::format("{} is {}, no path or table", shown(node), kind_name(node.kind));
  if (std::string why = read_keys(node, "set.", fields_of(set), "a set"); !why.empty()) return why;
  return set.path.empty() ? "a set has no path" : "";
}

std::string read_harnesses(const TomlNode& node, std::vector<HarnessConfig>& harnesses) {
  constexpr size_t kMost = 100;
  std::vector<HarnessConfig> read;
  const std::vector<const TomlNode*> items = items_of(node);
  if (items.size() > kMost) return fmt::format("the list has {} programs, at most {}", items.size(), kMost);
  for (const TomlNode* item : items) {
    HarnessConfig& harness = read.emplace_back();
    if (std::string why = read_harness(*item, harness); !why.empty()) return why;
    if (items.size() > 1 && harness.name.empty())
      return fmt::format("program {} has no name, by which lines could choose it", read.size());
    for (size_t i = 0; i + 1 < read.size(); ++i)
      if (read[i].name == harness.name)
        return fmt::format("\"{}\" is the name of two programs", harness.name);
  }
  harnesses = std::move(read);
  return "";
}

Json function_json(const RewardFunctionConfig& function) {
  Json one{{"name", function.name}, {"weight", function.weight}};
  if (!function.as.empty()) one["as"] = function.as;
  if (!function.domains.empty()) one["domains"] = function.domains;
  for (const auto& [key, value] : function.numbers) one[key] = value;
  for (const auto& [key, value] : function.strings) one[key] = value;
  for (const auto& [key, value] : function.lists) one[key] = value;
  return one;
}

Json set_json(const ValidationSet& set) {
  ValidationSet copy = set;
  constexpr std::string_view kSet = "set.", kRollout = "set.rollout.";
  Json one = Json::object(), rollout = Json::object();
  for (const Field& field : fields_of(copy)) {
    const Json value = field_json(field);
    const bool unset = value.is_null() || value == "" || (field.key == "set.weight" && value == 1.0) ||
                       (field.key == "set.rewards" && value.empty());
    if (unset) continue;
    const bool sampling = field.key.starts_with(kRollout);
    (sampling ? rollout : one)[field.key.substr((sampling ? kRollout : kSet).size())] = value;
  }
  if (!rollout.empty()) one["rollout"] = std::move(rollout);
  return one;
}

Json harness_json(const HarnessConfig& harness) {
  HarnessConfig copy = harness;
  constexpr std::string_view kHarness = "harness.";
  Json one = Json::object();
  for (const Field& field : harness_fields(copy)) {
    Json value = field_json(field);
    const bool unset = value == "" || (value.is_structured() && value.empty());
    if (!unset) one[field.key.substr(kHarness.size())] = std::move(value);
  }
  return one;
}

}  // namespace temper
