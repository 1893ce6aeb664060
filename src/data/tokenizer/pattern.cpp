// Screening and rewriting of regular expressions: Oniguruma (Ruby syntax) to PCRE2.

#include <algorithm>
#include <array>

#include "src/core/check.h"
#include "src/data/tokenizer/regex.h"
#include "src/data/tokenizer/text.h"

namespace temper {
namespace {

constexpr size_t kMaxPattern = 16384;
constexpr int kMaxGroupDepth = 64;
constexpr int kMaxRepeat = 1000;

constexpr std::array<std::string_view, 38> kCategories = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs", "Any"};
constexpr std::array<std::string_view, 11> kScripts = {"Arabic",   "Cyrillic", "Devanagari", "Greek",
                                                       "Han",      "Hangul",   "Hebrew",     "Hiragana",
                                                       "Katakana", "Latin",    "Thai"};
constexpr std::array<std::string_view, 8> kGroups = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "("};

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translator {
 public:
  Translator(const std::string& pattern, const JsonSection& section) : in_(pattern), section_(section) {}

  std::string run() {
    if (in_.empty()) refuse("is empty");
    if (in_.size() > kMaxPattern)
      refuse(fmt::format("has {} bytes, the limit is {}", in_.size(), kMaxPattern));
    if (find_invalid_utf8(in_)) refuse("is not UTF-8");
    while (at_ < in_.size()) element();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    section_.refuse(fmt::format("{} (byte {} of the pattern)", why, at_));
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void copy(size_t bytes) {
    out_.append(in_, at_, bytes);
    at_ += bytes;
  }

  void element() {
    switch (peek()) {
      case '\\':
        escape();
        break;
      case '[':
        character_class();
        break;
      case '(':
        open_group();
        break;
      case ')':
        if (--depth_ < 0) refuse("closes a group that was not opened");
        copy(1);
        break;
      case '{':
        repeat();
        break;
      default:
        copy(1);
    }
  }

  void open_group() {
    if (++depth_ > kMaxGroupDepth) refuse(fmt::format("nests groups deeper than {}", kMaxGroupDepth));
    for (std::string_view group : kGroups) {
      if (in_.compare(at_, group.size(), group) != 0) continue;
      if (group == "(" && (peek(1) == '?' || peek(1) == '*')) break;
      copy(group.size());
      return;
    }
    refuse("uses a kind of group that is not supported");
  }

  /// {n}, {n,} or {n,m}. What follows it as a possessive or lazy sign means different things in the dialects.
  void repeat() {
    size_t end = at_ + 1;
    int commas = 0;
    while (end < in_.size() && (is_digit(in_[end]) || in_[end] == ',')) commas += in_[end++] == ',' ? 1 : 0;
    if (end >= in_.size() || in_[end] != '}' || commas > 1 || !is_digit(peek(1)))
      refuse("has a `{` that is neither a repeat count nor escaped");
    for (size_t i = at_ + 1, value = 0; i < end; ++i) {
      value = is_digit(in_[i]) ? value * 10 + static_cast<size_t>(in_[i] - '0') : 0;
      if (value > kMaxRepeat) refuse(fmt::format("repeats more than {} times", kMaxRepeat));
    }
    if (end + 1 < in_.size() && (in_[end + 1] == '+' || in_[end + 1] == '?'))
      refuse("has `+` or `?` behind a `{n,m}` count");
    copy(end + 1 - at_);
  }

  void character_class() {
    copy(1);
    if (peek() == '^') copy(1);
    if (peek() == ']') refuse("has an empty class or an unescaped `]` first in it");
    while (peek() != ']') {
      if (at_ >= in_.size()) refuse("has a class without its `]`");
      if (peek() == '[') refuse("has a class inside a class (or an unescaped `[` in it)");
      if (peek() == '&' && peek(1) == '&') refuse("intersects classes with `&&`, which is not supported");
      if (peek() == '\\')
        escape();
      else
        copy(1);
    }
    copy(1);
  }

  void escape() {
    const char c = peek(1);
    if (c == '\0') refuse("ends in a single backslash (or has a zero byte)");
    if (c == 'p' || c == 'P') return property();
    if (c == 'x' || c == 'u') return code_point();
    if (c == 'd' || c == 'D') {
      out_ += c == 'd' ? "\\p{Nd}" : "\\P{Nd}";
      at_ += 2;
      return;
    }
    const bool known = std::string_view("sSrntf").find(c) != std::string_view::npos;
    if (is_alnum(c) && !known) refuse(fmt::format("uses the escape `\\{}`, which is not supported", c));
    copy(2);
  }

  /// \p{Lu}, \p{^Lu}, \P{Han}: general categories, and scripts in the sense of Script (not
  /// Script_Extensions).
  void property() {
    const size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == std::string::npos) refuse("has a `\\p` without {name}");
    std::string name = in_.substr(at_ + 3, close - at_ - 3);
    bool negated = peek(1) == 'P';
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.erase(0, 1);
    }
    const bool script = std::find(kScripts.begin(), kScripts.end(), name) != kScripts.end();
    if (!script && std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end())
      refuse(fmt::format("uses the property \\p{{{}}}, which is not supported", name.substr(0, 40)));
    out_ += fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', script ? "sc:" : "", name);
    at_ = close + 1;
  }

  /// \uHHHH, \x{H...}, \xHH below 0x80 (above, Oniguruma means a byte and PCRE2 a character).
  void code_point() {
    size_t begin = at_ + 2;
    size_t end = begin;
    const bool braces = peek(1) == 'x' && peek(2) == '{';
    const size_t digits = braces ? 8 : peek(1) == 'u' ? 4 : 2;
    if (braces) end = ++begin;
    while (end < in_.size() && end - begin < digits && is_hex(in_[end])) ++end;
    const bool complete = braces ? end > begin && end < in_.size() && in_[end] == '}' : end - begin == digits;
    if (!complete) refuse("has an incomplete code point");
    const unsigned long value = std::stoul(in_.substr(begin, end - begin), nullptr, 16);
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      refuse("names a code point that does not exist");
    if (digits == 2 && value >= 0x80) refuse("names single bytes above 0x7F");
    out_ += fmt::format("\\x{{{:x}}}", value);
    at_ = end + (braces ? 1 : 0);
  }

  const std::string& in_;
  const JsonSection& section_;
  std::string out_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string translate_pattern(const std::string& pattern, const JsonSection& section) {
  return Translator(pattern, section).run();
}

}  // namespace temper
