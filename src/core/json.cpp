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

/// Builds the value like nlohmann's own parser, and refuses what that parser lets through.
class StrictHandler : public nlohmann::json_sax<Json> {
 public:
  StrictHandler(int max_depth, bool keeps_integers)
      : max_depth_(max_depth), keeps_integers_(keeps_integers), dom_(root_, true) {}

  bool null() override { return dom_.null(); }
  bool boolean(bool v) override { return dom_.boolean(v); }
  bool number_integer(number_integer_t v) override { return dom_.number_integer(v); }
  bool number_unsigned(number_unsigned_t v) override { return dom_.number_unsigned(v); }
  bool number_float(number_float_t v, const string_t& s) override {
    if (!keeps_integers_ || s.find_first_not_of("-0123456789") != string_t::npos)
      return dom_.number_float(v, s);
    binary_t digits(binary_t::container_type(s.begin(), s.end()));
    return dom_.binary(digits);
  }
  bool string(string_t& v) override { return dom_.string(v); }
  bool binary(binary_t& v) override { return dom_.binary(v); }
  bool start_object(std::size_t n) override {
    keys_.emplace_back();
    return enter() && dom_.start_object(n);
  }
  bool key(string_t& k) override {
    if (!keys_.back().insert(k).second) return refuse("duplicate key \"" + k.substr(0, 80) + "\"");
    return dom_.key(k);
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return dom_.end_object();
  }
  bool start_array(std::size_t n) override { return enter() && dom_.start_array(n); }
  bool end_array() override {
    --depth_;
    return dom_.end_array();
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    std::string text = e.what();  // "[json.exception...] parse error at line 1, column 2: <reason>"
    if (auto at = text.find("parse error"); at != std::string::npos) text = text.substr(at);
    return refuse(fmt::format("{} (byte {})", text.substr(0, 300), position));
  }

  Json take() { return std::move(root_); }
  const std::string& reason() const { return reason_; }

 private:
  bool enter() {
    if (++depth_ > max_depth_) return refuse(fmt::format("nested deeper than {} levels", max_depth_));
    return true;
  }
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  int max_depth_;
  bool keeps_integers_;
  int depth_ = 0;
  Json root_;
  nlohmann::detail::json_sax_dom_parser<Json> dom_;
  std::vector<std::set<std::string, std::less<>>> keys_;
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

std::string dump_json_line(const Json& value) {
  if (!writes_as_it_is(value)) {
    Json copy = value;
    replace_numbers(copy);
    return dump_json_line(copy);
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace temper
