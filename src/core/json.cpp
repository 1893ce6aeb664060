#include "src/core/json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <vector>

#include "src/core/big_integer.h"
#include "src/core/check.h"
#include "src/core/file.h"

namespace temper {
namespace {

constexpr const char* kJsonFix = "correct the file, or fetch or write it again";

/// Builds the value, and refuses what nlohmann's own parser lets through.
class StrictHandler : public nlohmann::json_sax<Json> {
 public:
  StrictHandler(int max_depth, bool keeps_integers)
      : max_depth_(static_cast<size_t>(max_depth)), keeps_integers_(keeps_integers) {}

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool v) override { return add(v) != nullptr; }
  bool number_integer(number_integer_t v) override { return add(v) != nullptr; }
  bool number_unsigned(number_unsigned_t v) override { return add(v) != nullptr; }
  bool number_float(number_float_t v, const string_t& s) override {
    if (!keeps_integers_ || s.find_first_not_of("-0123456789") != string_t::npos) return add(v) != nullptr;
    return add(Json::binary(binary_t::container_type(s.begin(), s.end()))) != nullptr;
  }
  bool string(string_t& v) override { return add(std::move(v)) != nullptr; }
  bool binary(binary_t&) override { return refuse("binary value"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& k) override {
    Level& level = levels_.back();
    if (!level.keys.insert(k).second) return refuse("duplicate key \"" + k.substr(0, 80) + "\"");
    level.key = std::move(k);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    std::string text = e.what();  // "[json.exception...] parse error at line 1, column 2: <reason>"
    if (auto at = text.find("parse error"); at != std::string::npos) text = text.substr(at);
    return refuse(fmt::format("{} (byte {})", text.substr(0, 300), position));
  }

  Json take() { return std::move(root_); }
  const std::string& reason() const { return reason_; }

 private:
  struct Level {
    Json* node;                               // object or array under construction
    std::string key;                          // the last one, of an object
    std::set<std::string, std::less<>> keys;  // all of them
  };

  /// Where the value lies now.
  Json* add(Json value) {
    if (levels_.empty()) return &(root_ = std::move(value));
    Level& level = levels_.back();
    if (level.node->is_object()) return &append_member(*level.node, std::move(level.key), std::move(value));
    level.node->push_back(std::move(value));
    return &level.node->back();
  }
  bool open(Json container) {
    if (levels_.size() >= max_depth_) return refuse(fmt::format("nested deeper than {} levels", max_depth_));
    levels_.push_back({add(std::move(container)), "", {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  size_t max_depth_;
  bool keeps_integers_;
  Json root_;
  std::vector<Level> levels_;
  std::string reason_;
};

/// Without non-finite numbers, and without integers that are held as their digits.
bool writes_as_it_is(const Json& value) {
  if (value.is_structured()) return std::all_of(value.begin(), value.end(), writes_as_it_is);
  return !value.is_binary() && (!value.is_number_float() || std::isfinite(value.get<double>()));
}

void replace_numbers(Json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) value = nullptr;
  if (value.is_binary()) value = std::strtod(big_integer(value).value().c_str(), nullptr);
  if (value.is_structured())
    for (auto& child : value) replace_numbers(child);
}

Json parse(std::string_view text, const std::string& source, const JsonLimits& limits, bool keeps_integers) {
  if (static_cast<int64_t>(text.size()) > limits.bytes)
    fail(Exit::data, {.what = "JSON document is too large",
                      .where = source,
                      .why = fmt::format("{} bytes, the limit is {}", text.size(), limits.bytes),
                      .fix = "check that this is the file that was meant"});
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)  // to the parser it ends the text
    fail(Exit::data, {.what = "invalid JSON",
                      .where = source,
                      .why = fmt::format("a zero byte (byte {})", zero),
                      .fix = kJsonFix});
  StrictHandler handler(limits.depth, keeps_integers);
  if (!Json::sax_parse(text.begin(), text.end(), &handler))
    fail(Exit::data, {.what = "invalid JSON", .where = source, .why = handler.reason(), .fix = kJsonFix});
  return handler.take();
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits) {
  return parse(text, source, limits, false);
}

Json parse_json_keeping_integers(std::string_view text, const std::string& source, const JsonLimits& limits) {
  return parse(text, source, limits, true);
}

std::optional<std::string> big_integer(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return value.dump();
  if (!value.is_binary()) return std::nullopt;
  return std::string(value.get_binary().begin(), value.get_binary().end());
}

Json read_json_file(const std::string& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.bytes), path, limits);
}

std::string json_kind(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_binary()) return "a number";  // one of more than 64 bits (core/big_integer.h)
  return fmt::format("{} {}", value.is_structured() ? "an" : "a", value.type_name());
}

Json& append_member(Json& object, std::string key, Json value) {
  auto& members = object.get_ref<Json::object_t&>();
  return static_cast<Json::object_t::Container&>(members).emplace_back(std::move(key), std::move(value)).second;
}

std::string dump_json_line(const Json& value) {
  if (!writes_as_it_is(value)) {
    Json copy = value;
    replace_numbers(copy);
    return dump_json_line(copy);
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace temper
