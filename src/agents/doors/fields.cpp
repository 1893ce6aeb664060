#include "src/agents/doors/fields.h"

#include <cmath>
#include <limits>

namespace temper {
namespace {

[[noreturn]] void wrong(const std::string& name, const std::string& why) {
  throw RequestError({.what = "a field has a value that it cannot have", .where = name, .why = why});
}

}  // namespace

Fields::Fields(const Json& body, const std::set<std::string>& ignore) : body_(body), ignore_(ignore) {
  if (!body.is_object())
    throw RequestError({.what = "a body is no JSON object", .where = "", .why = json_kind(body)});
}

const Json& Fields::at(const std::string& name) const {
  static const Json kNull;
  const auto found = body_.find(name);
  return found == body_.end() || ignore_.contains(name) ? kNull : *found;
}

std::optional<std::string> Fields::text(const std::string& name) const {
  const Json& value = at(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_string()) wrong(name, "a text is needed, and this is " + json_kind(value));
  return value.get<std::string>();
}

bool Fields::flag(const std::string& name, bool fallback) const {
  const Json& value = at(name);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) wrong(name, "true or false is needed, and this is " + json_kind(value));
  return value.get<bool>();
}

std::optional<double> Fields::number(const std::string& name, double low, double high) const {
  const Json& value = at(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) wrong(name, "a number is needed, and this is " + json_kind(value));
  const double number = value.get<double>();
  if (!(number >= low && number <= high))
    wrong(name, fmt::format("{}; {} to {} are legal", number, low, high));
  return number;
}

std::optional<int64_t> Fields::integer(const std::string& name, int64_t low, int64_t high) const {
  const Json& value = at(name);
  if (value.is_null()) return std::nullopt;
  const auto beyond = [&](const auto& number) {
    wrong(name, fmt::format("{}; whole numbers from {} to {} are legal", number, low, high));
  };
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max())
    beyond(value.get<uint64_t>());
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::floor(number) != number || std::abs(number) > 1e15) beyond(number);
  } else if (!value.is_number()) {
    wrong(name, "a whole number is needed, and this is " + json_kind(value));
  }
  const auto number = value.get<int64_t>();
  if (number < low || number > high) beyond(number);
  return number;
}

std::vector<std::string> Fields::texts(const std::string& name, size_t most) const {
  const Json& value = at(name);
  if (value.is_null()) return {};
  std::vector<std::string> texts;
  if (value.is_string()) texts.push_back(value.get<std::string>());
  if (!value.is_string() && !value.is_array())
    wrong(name, "a text or a list of texts is needed, and this is " + json_kind(value));
  for (const Json& one : value.is_array() ? value : Json::array()) {
    if (!one.is_string()) wrong(name, "it holds " + json_kind(one));
    texts.push_back(one.get<std::string>());
  }
  if (texts.size() > most) wrong(name, fmt::format("{} texts, {} at most", texts.size(), most));
  for (const std::string& one : texts)
    if (one.empty()) wrong(name, "one of them is empty");
  return texts;
}

std::vector<int32_t> Fields::ids(const std::string& name) const {
  return has(name) ? token_ids(at(name), name) : std::vector<int32_t>{};
}

void Fields::refuse(const std::string& name, const std::string& why) const {
  throw RequestError({.what = "a field cannot be obeyed", .where = name, .why = why});
}

std::vector<int32_t> token_ids(const Json& list, const std::string& name) {
  if (!list.is_array()) wrong(name, "a list of token ids is needed, and this is " + json_kind(list));
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
      wrong(name, fmt::format("entry {} is no token id", ids.size()));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace temper
