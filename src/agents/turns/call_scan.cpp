#include "src/agents/turns/call_scan.h"

#include <algorithm>

#include "src/agents/turns/messages.h"
#include "src/core/check.h"
#include "src/data/tokenizer/text.h"

namespace temper {
namespace {

constexpr std::string_view kWhite = " \t\n\r", kFunctionOpen = "<function=", kFunctionClose = "</function>",
                           kArgumentOpen = "<parameter=", kArgumentClose = "</parameter>";
/// What may stand in JSON outside of its texts.
constexpr std::string_view kOutside = " \t\n\r{}[]:,\"0123456789+-.eEtrufalsn";

bool is_white(char c) { return kWhite.find(c) != std::string_view::npos; }

/// "type": a text or a list of texts; "anyOf": a list of schemas.
void add_types(const Json& schema, std::vector<std::string>& types) {
  if (!schema.is_object()) return;
  const auto add = [&](const Json& type) {
    if (type.is_string()) types.push_back(type.get<std::string>());
  };
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_array())
      for (const Json& one : *type) add(one);
    else
      add(*type);
  }
  for (const char* name : {"anyOf", "oneOf"})
    if (const auto any = schema.find(name); any != schema.end() && any->is_array())
      for (const Json& one : *any)
        if (one.is_object() && one.contains("type")) add(one["type"]);
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  return type == "null" && value.is_null();
}

/// The text of a member of an object that parses, as it stands there; empty: its key is written otherwise.
std::string_view member_text(std::string_view object, std::string_view key) {
  const std::string quoted = fmt::format("\"{}\"", key);
  int depth = 0;
  size_t value = 0;  // where the member's begins
  for (size_t i = 0; i < object.size(); ++i) {
    const char c = object[i];
    if (c == '"') {
      const size_t begin = i;
      for (++i; object[i] != '"'; ++i) i += object[i] == '\\';
      if (depth != 1 || value != 0 || object.substr(begin, i + 1 - begin) != quoted) continue;
      const size_t colon = object.find_first_not_of(kWhite, i + 1);
      if (object[colon] == ':') i = (value = object.find_first_not_of(kWhite, colon + 1)) - 1;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 1 && value != 0 && i > value && (c == ',' || c == '}')) {
      const std::string_view found = object.substr(value, i - value);
      return found.substr(0, found.find_last_not_of(kWhite) + 1);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return {};
}

}  // namespace

ArgumentTypes::ArgumentTypes(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    const Json function = tool.is_object() ? tool.value("function", Json()) : Json();
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) continue;
    const Json parameters = function.value("parameters", Json());
    if (!parameters.is_object()) continue;
    const Json properties = parameters.value("properties", Json());
    if (!properties.is_object()) continue;
    for (const auto& [name, schema] : properties.items())
      add_types(schema, types_[{function["name"].get<std::string>(), name}]);
  }
}

Json ArgumentTypes::value(const std::string& tool, const std::string& argument,
                          const std::string& said) const {
  const auto found = types_.find({tool, argument});
  if (found == types_.end() || found->second.empty()) return said;
  const std::vector<std::string>& types = found->second;
  std::string written = said;
  if (said == "True" || said == "False") written[0] = static_cast<char>(written[0] + ('a' - 'A'));
  if (said == "None") written = "null";
  const bool text = std::find(types.begin(), types.end(), "string") != types.end();
  if (text && written != "null") return said;
  try {
    const JsonLimits limits{.depth = kArgumentDepth - 1, .bytes = std::ssize(written)};
    Json value = parse_json(written, "argument", limits);
    const auto fits = [&](const std::string& type) { return has_type(value, type); };
    if (std::any_of(types.begin(), types.end(), fits)) return value;
  } catch (const Error&) {  // it is no JSON
  }
  return said;
}

CallScan::CallScan(CallSyntax syntax, const ArgumentTypes& types)
    : syntax_(syntax), types_(types), state_(syntax == CallSyntax::json ? At::object : At::open) {}

CallScan::Found CallScan::read(std::string_view text) {
  while (!done_) {
    const Step did = step(text);
    if (did == Step::more) return Found::open;
    if (did == Step::fail) return Found::text;
  }
  return finish(text);
}

CallScan::Step CallScan::step(std::string_view text) {
  const bool may_be_white = state_ != At::open && state_ != At::value && state_ != At::function_name &&
                            state_ != At::argument && !(state_ == At::object && depth_ > 0);
  while (may_be_white && at_ < text.size() && is_white(text[at_])) ++at_;
  switch (state_) {
    case At::open:
      return skip(text, kCallOpen, syntax_ == CallSyntax::xml_tags ? At::function : At::object);
    case At::object:
      return read_object(text);
    case At::close:
    case At::call_close: {
      const Step did = skip(text, kCallClose, At::call_close);
      done_ = did == Step::next;
      return did;
    }
    case At::function:
      return skip(text, kFunctionOpen, At::function_name);
    case At::function_name:
      return read_name(text, call_.name, At::part);
    case At::part:
      return read_part(text);
    case At::argument:
      return read_name(text, argument_, At::value);
    case At::value:
      return read_value(text);
  }
  return Step::fail;
}

CallScan::Step CallScan::skip(std::string_view text, std::string_view literal, At next) {
  const std::string_view there = text.substr(at_, literal.size());
  if (there != literal.substr(0, there.size())) return Step::fail;
  if (there.size() < literal.size()) return Step::more;
  at_ += literal.size();
  begin_ = at_;
  state_ = next;
  return Step::next;
}

CallScan::Step CallScan::read_object(std::string_view text) {
  if (at_ == text.size()) return Step::more;
  if (depth_ == 0) {
    if (text[at_] != '{') return Step::fail;
    object_begin_ = at_;
  }
  for (; at_ < text.size(); ++at_) {
    const char c = text[at_];
    if (in_text_) {
      if (static_cast<unsigned char>(c) < 0x20) return Step::fail;
      in_text_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      continue;
    }
    if (kOutside.find(c) == std::string_view::npos) return Step::fail;
    in_text_ = c == '"';
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') --depth_;
    if (depth_ > kArgumentDepth + 1) return Step::fail;
    if (depth_ > 0) continue;
    object_end_ = ++at_;
    state_ = At::close;
    done_ = syntax_ == CallSyntax::json;
    return Step::next;
  }
  return Step::more;
}

CallScan::Step CallScan::read_name(std::string_view text, std::string& name, At next) {
  const size_t end = text.find_first_of("<>\n", at_);
  at_ = std::min(end, text.size());
  if (end == std::string_view::npos) return Step::more;
  if (text[end] != '>' || end == begin_) return Step::fail;
  name = text.substr(begin_, end - begin_);
  begin_ = at_ = end + 1;
  state_ = next;
  return Step::next;
}

CallScan::Step CallScan::read_part(std::string_view text) {
  const Step argument = skip(text, kArgumentOpen, At::argument);
  if (argument == Step::next) return argument;
  const Step close = skip(text, kFunctionClose, At::call_close);
  return argument == Step::more ? argument : close;
}

CallScan::Step CallScan::read_value(std::string_view text) {
  const size_t end = text.find(kArgumentClose, at_);
  if (end == std::string_view::npos) {  // what may begin the tag is looked at again
    const size_t again = std::min(text.size() - begin_, kArgumentClose.size() - 1);
    at_ = std::max(at_, text.size() - again);
    return Step::more;
  }
  at_ = end + kArgumentClose.size();
  std::string_view value = text.substr(begin_, end - begin_);
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  if (!values_.emplace(argument_, value).second) return Step::fail;
  order_.push_back(argument_);
  state_ = At::part;
  return Step::next;
}

CallScan::Found CallScan::finish(std::string_view text) {
  const bool whole = syntax_ == CallSyntax::xml_tags ? take_parts() : take_object(text);
  return whole ? Found::call : Found::text;
}

bool CallScan::take_object(std::string_view text) try {
  const std::string_view said = text.substr(object_begin_, object_end_ - object_begin_);
  const Json object = parse_json(said, "call", {.depth = kArgumentDepth + 1, .bytes = std::ssize(said)});
  const auto name = object.find("name");
  const char* key = object.contains("arguments") ? "arguments" : "parameters";
  const auto arguments = object.find(key);
  if (name == object.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) return false;
  if (arguments == object.end() || !arguments->is_object()) return false;
  const std::string_view written = member_text(said, key);
  call_ = {*name, *arguments, written.empty() ? dump_json_line(*arguments) : std::string(written)};
  return true;
} catch (const Error&) {
  return false;
}

bool CallScan::take_parts() {
  if (find_invalid_utf8(call_.name)) return false;
  call_.arguments = Json::object();
  for (const std::string& argument : order_) {
    const std::string& said = values_[argument];
    if (find_invalid_utf8(argument) || find_invalid_utf8(said)) return false;
    append_member(call_.arguments, argument, types_.value(call_.name, argument, said));
  }
  call_.arguments_text = dump_json_line(call_.arguments);
  return true;
}

}  // namespace temper
