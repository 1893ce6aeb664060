#include "src/io/json_members.h"

#include <set>

#include "src/core/check.h"
#include "src/core/json.h"

namespace temper {
namespace {

constexpr JsonLimits kKeyLimits{.depth = 1, .bytes = 64 << 10};

class Scanner {
 public:
  Scanner(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
  }
  bool done() const { return at_ == text_.size(); }
  bool next_is(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  void expect(char c) {
    if (!next_is(c)) refuse(fmt::format("'{}' expected", c));
    ++at_;
  }
  std::string key() {
    if (!next_is('"')) refuse("a key in quotes expected");
    const size_t begin = at_;
    skip_string();
    return parse_json(text_.substr(begin, at_ - begin), source_, kKeyLimits).get<std::string>();
  }
  /// Text up to the comma or brace that ends a value; whether it is a value is the caller's to parse.
  std::string_view value() {
    skip_space();
    const size_t begin = at_;
    for (int64_t depth = 0; at_ < text_.size();) {
      const char c = text_[at_];
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
      if (c == '"') {
        skip_string();
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      ++at_;
    }
    if (at_ == begin) refuse("a value expected");
    return text_.substr(begin, at_ - begin);
  }
  [[noreturn]] void refuse(const std::string& why) const {
    fail(Exit::data, {.what = "invalid JSON",
                      .where = source_,
                      .why = fmt::format("{} (byte {})", why, at_),
                      .fix = "the file is damaged or no JSON; fetch or write it again"});
  }

 private:
  void skip_string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    if (at_ >= text_.size()) {
      at_ = text_.size();
      refuse("a string does not end");
    }
    ++at_;
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
};

}  // namespace

void for_each_member(std::string_view object, const std::string& source,
                     const std::function<void(const std::string& key, std::string_view value)>& member) {
  Scanner scan(object, source);
  std::set<std::string> seen;
  scan.expect('{');
  while (!scan.next_is('}')) {
    if (!seen.empty()) scan.expect(',');
    std::string key = scan.key();
    scan.expect(':');
    const std::string_view value = scan.value();
    if (!seen.insert(key).second) scan.refuse("duplicate key " + quote_name(key));
    member(key, value);
  }
  scan.expect('}');
  scan.skip_space();
  if (!scan.done()) scan.refuse("text after the object");
}

std::string quote_name(std::string_view name) {
  constexpr size_t kShown = 120;
  std::string text(name.substr(0, kShown));
  if (name.size() > kShown) text += "...";
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace temper
