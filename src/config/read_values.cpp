#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "src/config/sets/read_lists.h"
#include "src/config/typed/meant.h"
#include "src/config/typed/refusals.h"
#include "src/config/units/byte_size.h"
#include "src/config/units/duration.h"
#include "src/config/values.h"
#include "src/core/check.h"
#include "src/core/text/nearest.h"

namespace temper {
namespace {

using Kind = TomlNode::Kind;
using Failed = std::optional<BadValue>;
constexpr size_t kMaxItems = 10000;
constexpr size_t kMaxNameBytes = 200;

bool is_folder_name(const std::string& text) {
  if (text.empty() || text.size() > kMaxNameBytes || text == "." || text == ".." || text[0] == '-')
    return false;
  return std::none_of(text.begin(), text.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '/' || c == '\\'; });
}

/// Reads one node into the member of a field, whatever its type.
class Reader {
 public:
  Reader(const TomlNode& node, const Field& field)
      : node_(node), field_(field), spec_(field.spec), refuse_(node, field) {}

  Failed operator()(bool* out) const {
    if (node_.kind != Kind::boolean) return refuse_.wrong_type({true, false});
    *out = node_.boolean;
    return {};
  }
  Failed operator()(int64_t* out) const {
    return spec_.format == Format::byte_size && node_.kind == Kind::text ? bytes(*out) : integer(node_, *out);
  }
  Failed operator()(uint64_t* out) const {
    int64_t value = 0;
    if (Failed bad = integer(node_, value)) return bad;
    *out = static_cast<uint64_t>(value);
    return {};
  }
  Failed operator()(double* out) const { return number(node_, *out); }
  Failed operator()(std::string* out) const { return text(node_, *out); }

  Failed operator()(std::optional<bool>* out) const {
    if (is_absent_word()) return (out->reset(), std::nullopt);
    if (node_.kind != Kind::boolean) {
      std::vector<Json> legal{true, false};
      if (!spec_.absent.empty()) legal.insert(legal.begin(), spec_.absent);
      return refuse_.illegal(node_, std::move(legal));
    }
    *out = node_.boolean;
    return {};
  }
  Failed operator()(std::optional<int64_t>* out) const {
    if (is_absent_word()) return (out->reset(), std::nullopt);
    int64_t value = 0;
    if (spec_.format == Format::byte_size && node_.kind == Kind::text) {
      *out = parse_byte_size(node_.text);
      return *out ? Failed{} : refuse_.illegal(node_, {spec_.absent, "40GiB"});
    }
    if (Failed bad = integer(node_, value)) return bad;
    *out = value;
    return {};
  }
  Failed operator()(std::optional<double>* out) const {
    if (is_absent_word()) return (out->reset(), std::nullopt);
    if (spec_.format == Format::duration) return duration(*out);
    double value = 0;
    if (Failed bad = number(node_, value)) return bad;
    *out = value;
    return {};
  }
  Failed operator()(std::optional<std::string>* out) const { return text(node_, out->emplace()); }
  template <class T>
  Failed operator()(std::optional<T>* out) const {
    T value{};
    if (Failed bad = (*this)(&value)) return bad;
    *out = std::move(value);
    return {};
  }

  Failed operator()(std::vector<std::string>* out) const {
    if (is_absent_word()) return (out->clear(), std::nullopt);
    return list<std::string>(out,
                             [&](const TomlNode& item, std::string& value) { return text(item, value); });
  }
  Failed operator()(std::vector<int64_t>* out) const {
    return list<int64_t>(out, [&](const TomlNode& item, int64_t& value) { return integer(item, value); });
  }
  Failed operator()(std::vector<double>* out) const {
    return list<double>(out, [&](const TomlNode& item, double& value) { return number(item, value); });
  }
  Failed operator()(std::map<int64_t, double>* out) const;
  Failed operator()(std::vector<DataSource>* out) const;
  Failed operator()(std::vector<ValidationSet>* out) const;
  Failed operator()(std::vector<RewardFunctionConfig>* out) const;
  Failed operator()(std::vector<HarnessConfig>* out) const;
  Failed operator()(std::map<std::string, std::string>* out) const;
  Failed operator()(Json* out) const;

 private:
  bool is_absent_word() const {
    return !spec_.absent.empty() && node_.kind == Kind::text && node_.text == spec_.absent;
  }

  Failed integer(const TomlNode& node, int64_t& out) const {
    if (node.kind != Kind::integer) return refuse_.wrong_type(node, refuse_.numbers(true));
    // 2^63 - 1 is not a double: the upper bound of seeds is the type's own.
    const auto value = static_cast<double>(node.integer);
    if (!spec_.range.has(value)) return refuse_.illegal(node, refuse_.numbers(true, value));
    out = node.integer;
    return {};
  }
  Failed number(const TomlNode& node, double& out) const {
    if (node.kind != Kind::integer && node.kind != Kind::real)
      return refuse_.wrong_type(node, refuse_.numbers(false));
    const double value = node.kind == Kind::real ? node.real : static_cast<double>(node.integer);
    if (!std::isfinite(value) || !spec_.range.has(value))
      return refuse_.illegal(node, refuse_.numbers(false, value));
    out = value;
    return {};
  }
  Failed bytes(int64_t& out) const {
    const std::optional<int64_t> size = parse_byte_size(node_.text);
    if (!size || !spec_.range.has(static_cast<double>(*size)))
      return refuse_.illegal(node_, {field_json(field_)});
    out = *size;
    return {};
  }
  Failed text(const TomlNode& node, std::string& out) const;
  Failed duration(std::optional<double>& out) const {
    if (node_.kind == Kind::text) out = parse_duration(node_.text);
    if (node_.kind != Kind::text || !out) return refuse_.illegal(node_, {"none", spec_.example});
    return {};
  }

  template <class T, class Read>
  Failed list(std::vector<T>* out, const Read& read) const {
    if (node_.kind != Kind::array) return refuse_.wrong_type({field_json(field_)});
    if (node_.items.size() > kMaxItems || (spec_.count > 0 && node_.items.size() != spec_.count))
      return refuse_.because(
          fmt::format("the list has {} values; legal: {}", node_.items.size(), rule_text(field_)),
          {field_json(field_)});
    std::vector<T> values;
    for (const TomlNode& item : node_.items) {
      T value{};
      if (Failed failed = read(item, value)) return failed;
      values.push_back(value);
    }
    *out = std::move(values);
    return {};
  }

  const TomlNode& node_;
  const Field& field_;
  const KeySpec& spec_;
  const Refusals refuse_;
};

Failed Reader::text(const TomlNode& node, std::string& out) const {
  const bool scalar = node.kind != Kind::array && node.kind != Kind::table;
  // On the command line `run.name=7` means the text: there is no way to see quotes behind the shell.
  const bool from_shell = scalar && &node == &node_ && !node.raw.empty();
  if (node.kind != Kind::text && !from_shell) {
    return refuse_.wrong_type(node, spec_.choices.empty() ? refuse_.texts() : refuse_.choices());
  }
  const std::string value = node.kind == Kind::text ? node.text : node.raw;
  if (!spec_.choices.empty() &&
      std::find(spec_.choices.begin(), spec_.choices.end(), value) == spec_.choices.end()) {
    BadValue problem = refuse_.illegal(node, refuse_.choices());
    problem.message += did_you_mean(value, {spec_.choices.begin(), spec_.choices.end()});
    problem.message += spec_.no_choice.empty() ? "" : fmt::format(" ({})", spec_.no_choice);
    return problem;
  }
  const bool nothing =
      value.empty() && (spec_.format == Format::not_empty || spec_.format == Format::rank_set);
  if (nothing || value.find('\0') != std::string::npos) return refuse_.illegal(node, refuse_.texts());
  const bool digest = value.size() == 32 && value.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (spec_.format == Format::digest && !value.empty() && !digest) return refuse_.illegal(node, {""});
  if (spec_.format == Format::folder_name && !is_folder_name(value))
    return refuse_.illegal(node, {spec_.example});
  out = value;
  return {};
}

/// A token id as TOML writes keys; none for text that is no id, or has a sign or leading zeros.
std::optional<int64_t> read_token_id(const std::string& text) {
  int32_t id = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (status != std::errc() || id < 0 || fmt::format("{}", id) != text) return {};
  return id;
}

Failed Reader::operator()(std::map<int64_t, double>* out) const {
  if (node_.kind != Kind::table) return refuse_.wrong_type({Json::object()});
  if (node_.table.size() > kMaxItems)
    return refuse_.because(fmt::format("the table has {} ids, at most {}", node_.table.size(), kMaxItems),
                           {Json::object()});
  std::map<int64_t, double> values;
  for (const auto& [key, value] : node_.table) {
    const std::optional<int64_t> id = read_token_id(key);
    if (!id)
      return refuse_.because(fmt::format("`{}` is no token id; legal: {}", key, rule_text(field_)),
                             {Json::object()});
    if (Failed failed = number(value, values[*id])) return BadValue{failed->message, {Json::object()}};
  }
  *out = std::move(values);
  return {};
}

Failed Reader::operator()(std::vector<DataSource>* out) const {
  const auto not_so = [&](const TomlNode& node) { return refuse_.wrong_type(node, {}); };
  std::vector<const TomlNode*> items;
  if (node_.kind == Kind::array)
    for (const TomlNode& item : node_.items) items.push_back(&item);
  else if (node_.kind == Kind::text)
    items.push_back(&node_);
  else
    return not_so(node_);
  if (items.size() > kMaxItems)
    return refuse_.because(fmt::format("the list has {} files, at most {}", items.size(), kMaxItems), {});
  std::vector<DataSource> sources;
  for (const TomlNode* item : items) {
    DataSource source;
    if (item->kind == Kind::text) {
      source.path = item->text;
    } else if (item->kind == Kind::table) {
      for (const auto& [key, value] : item->table) {
        const bool number = value.kind == Kind::integer || value.kind == Kind::real;
        if (key == "path" && value.kind == Kind::text)
          source.path = value.text;
        else if (key == "weight" && number)
          source.weight = value.kind == Kind::real ? value.real : static_cast<double>(value.integer);
        else
          return refuse_.because(
              fmt::format("`{}` = {} is no part of a file; legal: {{path = \"FILE\", weight = NUMBER}}", key,
                          shown(value)),
              {});
      }
    } else {
      return not_so(*item);
    }
    if (source.path.empty()) return refuse_.because("a file has no path; legal: " + rule_text(field_), {});
    if (!(source.weight > 0 && source.weight <= 1e6))
      return refuse_.because(fmt::format("the weight of {} is {}; legal: more than 0, at most 1000000",
                                         source.path, source.weight),
                             {});
    sources.push_back(source);
  }
  if (sources.empty() && spec_.needed != Needed::no)
    return refuse_.because("the list is empty; legal: " + rule_text(field_), {});
  *out = std::move(sources);
  return {};
}

Failed Reader::operator()(std::vector<ValidationSet>* out) const {
  const std::vector<const TomlNode*> items = items_of(node_);
  std::vector<ValidationSet> sets;
  std::string why;
  if (items.size() > kMaxItems)
    why = fmt::format("the list has {} files, at most {}", items.size(), kMaxItems);
  for (size_t i = 0; i < items.size() && why.empty(); ++i) why = read_set(*items[i], sets.emplace_back());
  if (!why.empty()) return refuse_.because(why + "; legal: " + rule_text(field_), {});
  *out = std::move(sets);
  return {};
}

Failed Reader::operator()(std::vector<RewardFunctionConfig>* out) const {
  const std::vector<const TomlNode*> items = items_of(node_);
  std::vector<RewardFunctionConfig> functions;
  std::string why;
  if (items.empty() || items.size() > kMaxItems) why = fmt::format("the list has {} functions", items.size());
  for (const TomlNode* item : items) {
    if (!why.empty()) break;
    RewardFunctionConfig function;
    why = read_function(*item, function);
    for (const auto& earlier : functions)
      if (earlier.part() == function.part())
        why = fmt::format("\"{}\" is listed twice; `as` gives one of them another name", function.part());
    functions.push_back(std::move(function));
  }
  if (!why.empty()) return refuse_.because(why + "; legal: " + rule_text(field_), {});
  *out = std::move(functions);
  return {};
}

Failed Reader::operator()(std::vector<HarnessConfig>* out) const {
  const std::string why = read_harnesses(node_, *out);
  return why.empty() ? Failed{} : refuse_.because(why + "; legal: " + rule_text(field_), {Json::array()});
}

Failed Reader::operator()(std::map<std::string, std::string>* out) const {
  if (node_.kind != Kind::table) return refuse_.wrong_type({Json::object()});
  std::map<std::string, std::string> values;
  for (const auto& [key, value] : node_.table) {
    const bool name = !key.empty() && key.find_first_of(std::string_view("=\0", 2)) == std::string::npos;
    if (!name || values.size() == kMaxItems)
      return refuse_.because(
          fmt::format("`{}` is no name, or one too many; legal: {}", key, rule_text(field_)),
          {Json::object()});
    if (Failed failed = text(value, values[key])) return BadValue{failed->message, {Json::object()}};
  }
  *out = std::move(values);
  return {};
}

/// The first value that JSON cannot hold, or null.
const TomlNode* not_json(const TomlNode& node) {
  if (node.kind == Kind::date || (node.kind == Kind::real && !std::isfinite(node.real))) return &node;
  for (const TomlNode& item : node.items)
    if (const TomlNode* found = not_json(item)) return found;
  for (const auto& [key, value] : node.table)
    if (const TomlNode* found = not_json(value)) return found;
  return nullptr;
}

Failed Reader::operator()(Json* out) const {
  if (node_.kind != Kind::table) return refuse_.wrong_type({Json::object()});
  if (const TomlNode* found = not_json(node_))
    return refuse_.because(
        fmt::format("{} is {}; legal: strings, finite numbers, true, false, lists and tables", shown(*found),
                    kind_name(found->kind)),
        {Json::object()});
  *out = node_json(node_);
  return {};
}

}  // namespace

std::optional<BadValue> read_value(const TomlNode& node, const Field& field) {
  const TomlNode meant = as_meant(node, field);
  return std::visit(Reader(meant, field), field.target);
}

}  // namespace temper
