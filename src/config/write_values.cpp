#include <cmath>

#include "src/config/sets/read_lists.h"
#include "src/config/units/duration.h"
#include "src/config/values.h"
#include "src/core/check.h"

namespace temper {
namespace {

Json sources_json(const std::vector<DataSource>& sources) {
  Json list = Json::array();
  for (const DataSource& source : sources) list.push_back({{"path", source.path}, {"weight", source.weight}});
  return list;
}

template <class Item>
Json list_json(const std::vector<Item>& items, Json (*item_json)(const Item&)) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(item_json(item));
  return list;
}

struct ToJson {
  const KeySpec& spec;

  Json absent() const { return spec.absent.empty() ? Json() : Json(std::string(spec.absent)); }
  template <class T>
  Json operator()(const T* value) const {
    return Json(*value);
  }
  template <class T>
  Json operator()(const std::optional<T>* value) const {
    return *value ? Json(**value) : absent();
  }
  Json operator()(const std::optional<double>* value) const {
    if (!*value) return absent();
    return spec.format == Format::duration ? Json(format_duration(**value)) : Json(**value);
  }
  Json operator()(const std::vector<std::string>* value) const {
    return value->empty() && !spec.absent.empty() ? absent() : Json(*value);
  }
  Json operator()(const std::optional<std::map<int64_t, double>>* value) const {
    return *value ? (*this)(&**value) : absent();
  }
  Json operator()(const std::map<int64_t, double>* value) const {
    Json object = Json::object();
    for (const auto& [id, number] : *value) object[fmt::format("{}", id)] = number;
    return object;
  }
  Json operator()(const std::vector<DataSource>* value) const { return sources_json(*value); }
  Json operator()(const std::vector<ValidationSet>* value) const { return list_json(*value, set_json); }
  Json operator()(const std::vector<RewardFunctionConfig>* value) const {
    return list_json(*value, function_json);
  }
  Json operator()(const std::vector<HarnessConfig>* value) const { return list_json(*value, harness_json); }
};

struct TypeText {
  std::string operator()(const std::string*) const { return "string"; }
  std::string operator()(const bool*) const { return "boolean"; }
  std::string operator()(const int64_t*) const { return "integer"; }
  std::string operator()(const uint64_t*) const { return "integer"; }
  std::string operator()(const double*) const { return "number"; }
  template <class T>
  std::string operator()(const std::optional<T>*) const {
    return (*this)(static_cast<const T*>(nullptr));
  }
  std::string operator()(const std::vector<std::string>*) const { return "list of strings"; }
  std::string operator()(const std::vector<int64_t>*) const { return "list of integers"; }
  std::string operator()(const std::vector<double>*) const { return "list of numbers"; }
  std::string operator()(const std::map<int64_t, double>*) const { return "table of numbers"; }
  std::string operator()(const std::vector<DataSource>*) const { return "string or list"; }
  std::string operator()(const std::vector<ValidationSet>*) const { return "string or list of sets"; }
  std::string operator()(const std::vector<RewardFunctionConfig>*) const { return "list"; }
  std::string operator()(const std::vector<HarnessConfig>*) const { return "table or list of tables"; }
  std::string operator()(const std::map<std::string, std::string>*) const { return "table of strings"; }
  std::string operator()(const Json*) const { return "table"; }
};

std::string bound_text(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{}", value);
}

std::string range_text(const Range& range) {
  std::string text = "any finite number";
  if (range.low > -1e300)
    text = fmt::format("{}{} {}", range.or_zero ? "0, or " : "", range.above_low ? "more than" : "at least",
                       bound_text(range.low));
  constexpr double kLargestInteger = 0x1p63;  // as good as no limit
  if (range.high < kLargestInteger)
    text += (range.below_high ? " and less than " : " and at most ") + bound_text(range.high);
  return text;
}

std::string format_text(Format format) {
  switch (format) {
    case Format::folder_name:
      return "a plain folder name (no '/', not '.' or '..', no leading '-', 200 bytes)";
    case Format::not_empty:
      return "any string but the empty one";
    case Format::duration:
      return "a duration such as \"3h45m\" (units d, h, m, s in this order) or \"03:45:00\"";
    case Format::byte_size:
      return "a number of bytes, or a size such as \"40GiB\" (B, KB to TB, KiB to TiB)";
    case Format::rank_set:
      return "\"all\" or a rank set such as \"0-7,16-23\"";
    case Format::digest:
      return "32 hexadecimal digits in lower case, or the empty string";
    case Format::plain:
      return "any string";
  }
  return "";
}

}  // namespace

Json field_json(const Field& field) { return std::visit(ToJson{field.spec}, field.target); }

std::string toml_text(const Json& value) {
  if (value.is_string()) return quote_toml(value.get_ref<const std::string&>());
  if (value.is_null()) return "null";
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, item] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += quote_toml_key(key) + " = ";
    text += toml_text(item);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

Json node_json(const TomlNode& node) {
  switch (node.kind) {
    case TomlNode::Kind::boolean:
      return node.boolean;
    case TomlNode::Kind::integer:
      return node.integer;
    case TomlNode::Kind::real:
      return std::isfinite(node.real) ? Json(node.real) : Json();
    case TomlNode::Kind::text:
    case TomlNode::Kind::date:
      return node.text;
    case TomlNode::Kind::array:
      break;
    case TomlNode::Kind::table: {
      Json object = Json::object();
      for (const auto& [key, value] : node.table) object[key] = node_json(value);
      return object;
    }
  }
  Json list = Json::array();
  for (const TomlNode& item : node.items) list.push_back(node_json(item));
  return list;
}

std::string type_text(const Field& field) {
  if (field.spec.format == Format::duration) return "string";
  return std::visit(TypeText{}, field.target);
}

std::string rule_text(const Field& field) {
  const KeySpec& spec = field.spec;
  const std::string type = type_text(field);
  std::string text;
  if (!spec.choices.empty()) {
    std::vector<Json> words;
    for (const std::string_view word : spec.choices) words.emplace_back(std::string(word));
    text = (type.starts_with("list") ? "a list of " : "") + legal_text(words);
  } else if (type == "boolean") {
    text = "true or false";
  } else if (type == "string or list") {
    text = "\"FILE\", [\"FILE\", ...] or [{path = \"FILE\", weight = NUMBER}, ...]";
  } else if (type == "string or list of sets") {
    text =
        "\"FILE\", [\"FILE\", ...] or [{name = \"NAME\", path = \"FILE\", samples_per_prompt = NUMBER, "
        "rewards = "
        "[...], rollout = {KEY = VALUE}}, ...]";
  } else if (type == "list") {
    text =
        "[\"NAME\", ...] or [{name = \"NAME\", as = \"NAME\", domains = [\"DOMAIN\", ...], weight = NUMBER, "
        "OPTION = "
        "NUMBER, STRING or [STRING, ...]}, ...], each name once";
  } else if (type == "table or list of tables") {
    text =
        "{argv = [\"PROGRAM\", ...], kind = \"episode\" or \"service\", workers = 1, in_flight = 32, "
        "limit_seconds = 600, retries = 0, on_error = \"exclude\", \"zero\" or \"stop\", env = {NAME = "
        "\"VALUE\"}, aliases = {NAME = \"policy\" or \"policy-untrained\"}, ignore = [\"FIELD\", ...]} or a "
        "list of such tables, each with a name = \"NAME\"";
  } else if (type == "table") {
    text = "a table";
  } else if (type == "table of strings") {
    text = "a table of strings such as {NAME = \"VALUE\"}";
  } else if (type == "table of numbers") {
    text = "a table of token ids such as {5 = -1.5}, each a number, " + range_text(spec.range);
  } else if (type == "list of strings") {
    text = "a list of strings, none of them empty";
  } else if (type.find("string") == std::string::npos && spec.format != Format::byte_size) {
    const bool list = type.starts_with("list");
    text = list ? fmt::format("a list of {}{}, each ", spec.count > 0 ? fmt::format("{} ", spec.count) : "",
                              type.substr(8))
                : (type == "integer" ? "an integer, " : "a number, ");
    text += range_text(spec.range);
  } else {
    text = format_text(spec.format);
  }
  if (!spec.absent.empty()) text = fmt::format("\"{}\" or {}", spec.absent, text);
  return text;
}

}  // namespace temper
