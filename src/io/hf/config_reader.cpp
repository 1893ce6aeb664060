#include "src/io/hf/config_reader.h"

#include <cmath>
#include <limits>

#include "src/core/check.h"

namespace temper {
namespace {

constexpr size_t kMaxIds = 4096;

std::string shown(const Json& value) {
  std::string text = value.is_structured() ? (value.is_array() ? "an array" : "an object")
                                           : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 120 ? fmt::format("{}...", text.substr(0, 120)) : text;
}

bool fits(const Json& value, int64_t low, int64_t high) {
  if (value.is_number_unsigned())
    return value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) &&
           value.get<int64_t>() >= low && value.get<int64_t>() <= high;
  return value.is_number_integer() && value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, const std::string& source, std::string prefix,
                           std::vector<std::string>* warnings)
    : object_(object), source_(source), prefix_(std::move(prefix)), warnings_(warnings) {
  if (!object.is_object())
    fail(Exit::data,
         {.what = "bad model config",
          .where = prefix_.empty() ? source : source + ": " + prefix_.substr(0, prefix_.size() - 1),
          .why = "it must be an object, it is " + shown(object),
          .fix = "fetch the model's config.json again"});
}

const Json* ConfigReader::find(const std::string& key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<int64_t> ConfigReader::integer(const std::string& key, int64_t low, int64_t high) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!fits(*value, low, high))
    refuse(key, fmt::format("{} is not an integer from {} to {}", shown(*value), low, high));
  return value->get<int64_t>();
}

std::optional<double> ConfigReader::number(const std::string& key, double low, double high) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  const double x = value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(x >= low && x <= high))
    refuse(key, fmt::format("{} is not a number from {} to {}", shown(*value), low, high));
  return x;
}

std::optional<bool> ConfigReader::flag(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) refuse(key, shown(*value) + " is not true or false");
  return value->get<bool>();
}

std::optional<std::string> ConfigReader::text(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(key, shown(*value) + " is not a string");
  return value->get<std::string>();
}

std::vector<double> ConfigReader::numbers(const std::string& key, size_t count, double low,
                                          double high) const {
  const Json* value = find(key);
  if (!value) refuse(key, "it is missing");
  if (!value->is_array() || value->size() != count)
    refuse(key, fmt::format("it must be an array of {} numbers (half of head_dim)", count));
  std::vector<double> result;
  for (const Json& v : *value) {
    const double x = v.is_number() ? v.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(x >= low && x <= high))
      refuse(key,
             fmt::format("entry {} ({}) is not a number from {} to {}", result.size(), shown(v), low, high));
    result.push_back(x);
  }
  return result;
}

std::vector<int64_t> ConfigReader::ids(const std::string& key) const {
  const Json* value = find(key);
  if (!value) return {};
  const std::vector<Json> list =
      value->is_array() ? value->get<std::vector<Json>>() : std::vector<Json>{*value};
  if (list.size() > kMaxIds) refuse(key, fmt::format("it has {} ids, the limit is {}", list.size(), kMaxIds));
  std::vector<int64_t> result;
  for (const Json& v : list) {
    if (!fits(v, 0, std::numeric_limits<int32_t>::max()))
      refuse(key, shown(v) + " is not a whole number from 0 to 2147483647");
    result.push_back(v.get<int64_t>());
  }
  return result;
}

void ConfigReader::refuse(const std::string& key, const std::string& why, const std::string& fix) const {
  fail(Exit::data, {.what = "model config: \"" + prefix_ + key + "\" cannot be used",
                    .where = source_ + ": " + prefix_ + key,
                    .why = why,
                    .fix = fix.empty() ? "correct this key" : fix});
}

void ConfigReader::warn(const std::string& line) const {
  if (warnings_) warnings_->push_back(source_ + ": " + line);
}

}  // namespace temper
