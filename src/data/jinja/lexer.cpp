#include "src/data/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "src/core/check.h"
#include "src/data/jinja/text.h"

namespace temper::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }

/// One newline convention, and no newline at the very end.
std::string normalize_newlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& source)
      : text_(normalize_newlines(text)), source_(source) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const size_t tag = find_tag(at_);
      if (tag == std::string::npos) {
        emit_data(text_.size(), 0, '{');
        break;
      }
      const char type = text_[tag + 1];
      const char sign = sign_at(tag + 2);
      emit_data(tag, sign, type);
      if (type == '#') {
        skip_comment(tag + 2 + (sign != 0));
      } else if (type == '%' && raw_begin(tag) != std::string::npos) {
        read_raw(raw_begin(tag));
      } else {
        add(type == '{' ? TokenKind::print_begin : TokenKind::tag_begin);
        advance_to(tag + 2 + (sign != 0));
        read_expression(type == '{');
      }
      line_starting_ = at_ > 0 && text_[at_ - 1] == '\n';
    }
    add(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(const std::string& why) const { fail_syntax(source_, position_, why); }

  bool starts(size_t at, std::string_view what) const { return text_.compare(at, what.size(), what) == 0; }
  char sign_at(size_t at) const { return starts(at, "-") || starts(at, "+") ? text_[at] : char{0}; }

  void add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .at = position_, .text = std::move(text)});
  }

  void advance_to(size_t end) {
    for (; at_ < end; ++at_) {
      if (text_[at_] == '\n') {
        ++position_.line;
        position_.column = 1;
      } else if ((static_cast<unsigned char>(text_[at_]) & 0xC0) != 0x80) {
        ++position_.column;
      }
    }
  }

  size_t skip_space(size_t at) const {
    while (at < text_.size()) {
      size_t next = at;
      if (!is_space(next_code_point(text_, next))) break;
      at = next;
    }
    return at;
  }

  size_t find_tag(size_t from) const {
    for (size_t at = text_.find('{', from); at != std::string::npos; at = text_.find('{', at + 1))
      if (starts(at, "{%") || starts(at, "{{") || starts(at, "{#")) return at;
    return std::string::npos;
  }

  /// Text up to `end`, where a tag of this sign and type begins.
  void emit_data(size_t end, char sign, char type) {
    std::string_view data = std::string_view(text_).substr(at_, end - at_);
    if (sign == '-') {
      data = strip_space(data, {.left = false});
    } else if (sign != '+' && type != '{') {
      const size_t newline = data.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && strip_space(data.substr(line)).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) add(TokenKind::data, std::string(data));
    advance_to(end);
  }

  /// Where a tag end `closing` ("%}" or "#}") at `at` ends together with the white space it takes, or npos.
  size_t tag_end(size_t at, std::string_view closing, bool trim_newline) const {
    if (starts(at, "-") && starts(at + 1, closing)) return skip_space(at + 3);
    if (trim_newline && starts(at, "+") && starts(at + 1, closing)) return at + 3;
    if (!starts(at, closing)) return std::string::npos;
    return at + 2 + (trim_newline && starts(at + 2, "\n"));
  }

  void skip_comment(size_t begin) {
    for (size_t at = begin; at < text_.size(); ++at) {
      const size_t end = tag_end(at, "#}", true);
      if (end == std::string::npos) continue;
      advance_to(end);
      return;
    }
    fail_here("this comment has no end `#}`");
  }

  /// End of a `{% raw %}` tag at `at`, or npos.
  size_t raw_begin(size_t at) const {
    size_t word = skip_space(at + 2 + (sign_at(at + 2) != 0));
    if (!starts(word, "raw")) return std::string::npos;
    const size_t end = skip_space(word + 3);
    return starts(end, "+") ? std::string::npos : tag_end(end, "%}", false);
  }

  void read_raw(size_t begin) {
    const Position opened = position_;
    advance_to(begin);
    line_starting_ = text_[begin - 1] == '\n';
    for (size_t at = text_.find("{%", begin); at != std::string::npos; at = text_.find("{%", at + 1)) {
      const char sign = sign_at(at + 2);
      const size_t word = skip_space(at + 2 + (sign != 0));
      if (!starts(word, "endraw")) continue;
      const size_t end = tag_end(skip_space(word + 6), "%}", true);
      if (end == std::string::npos) continue;
      emit_data(at, sign, '%');
      advance_to(end);
      return;
    }
    fail_syntax(source_, opened, "this raw block has no end `{% endraw %}`");
  }

  /// Tokens up to the end of the tag; a missing end is found by the parser.
  void read_expression(bool print) {
    std::string open;  // brackets that wait for their partner: inside of them a tag does not end
    while (at_ < text_.size()) {
      const size_t end = !open.empty() ? std::string::npos
                         : print       ? tag_end(at_, "}}", false)
                                       : tag_end(at_, "%}", true);
      if (end != std::string::npos) {
        add(print ? TokenKind::print_end : TokenKind::tag_end);
        return advance_to(end);
      }
      const char c = text_[at_];
      if (const size_t next = skip_space(at_); next != at_) {
        advance_to(next);
      } else if (is_digit(c)) {
        read_number();
      } else if (is_name_start(c)) {
        read_name();
      } else if (c == '\'' || c == '"') {
        read_string();
      } else {
        read_operator(open);
      }
    }
  }

  void read_name() {
    size_t end = at_;
    while (end < text_.size() && is_name_char(text_[end])) ++end;
    add(TokenKind::name, text_.substr(at_, end - at_));
    advance_to(end);
  }

  /// Digits, with single underscores between them.
  size_t skip_digits(size_t at) const {
    while (at < text_.size() && (is_digit(text_[at]) || (text_[at] == '_' && is_digit(text_[at - 1]) &&
                                                         at + 1 < text_.size() && is_digit(text_[at + 1]))))
      ++at;
    return at;
  }

  void read_number() {
    size_t end = skip_digits(at_);
    bool real = false;
    const bool attribute = at_ > 0 && text_[at_ - 1] == '.';  // x.0.1 is two subscripts
    if (!attribute && starts(end, ".") && end + 1 < text_.size() && is_digit(text_[end + 1])) {
      end = skip_digits(end + 1);
      real = true;
    }
    if (!attribute && (starts(end, "e") || starts(end, "E"))) {
      const size_t digits = end + 1 + (sign_at(end + 1) != 0);
      if (digits < text_.size() && is_digit(text_[digits])) {
        end = skip_digits(digits);
        real = true;
      }
    }
    if (end < text_.size() && is_name_char(text_[end])) fail_here("only plain decimal numbers are supported");
    std::string digits = text_.substr(at_, end - at_);
    std::erase(digits, '_');
    Token token{.kind = real ? TokenKind::real : TokenKind::integer, .at = position_};
    if (real) {
      token.real = parse_real(digits).value_or(0);
    } else if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) {
      fail_here("a number may not start with 0");
    } else if (auto value = parse_integer(digits, 10)) {
      token.integer = *value;
    } else {
      fail_here(fmt::format("{} is beyond 64-bit integers", digits));
    }
    tokens_.push_back(std::move(token));
    advance_to(end);
  }

  void read_string() {
    const char quote = text_[at_];
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail_here("this string has no end");
    add(TokenKind::text, unescape(std::string_view(text_).substr(at_ + 1, end - at_ - 1)));
    advance_to(end + 1);
  }

  std::string unescape(std::string_view raw) const {
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        out += raw[i];
        continue;
      }
      static constexpr std::string_view kLetters = "nrtabfv\\'\"\n", kValues = "\n\r\t\a\b\f\v\\'\"";
      const char c = raw[++i];
      if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
        if (known < kValues.size()) out += kValues[known];  // a newline behind a backslash vanishes
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_escape(out, raw.substr(i + 1, digits), digits, 16);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        size_t digits = 1;
        while (digits < 3 && i + digits < raw.size() && raw[i + digits] >= '0' && raw[i + digits] <= '7')
          ++digits;
        append_escape(out, raw.substr(i, digits), digits, 8);
        i += digits - 1;
      } else if (c == 'N' || static_cast<unsigned char>(c) >= 0x80) {
        fail_here("this string has an escape that is not supported");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void append_escape(std::string& out, std::string_view digits, size_t wanted, int base) const {
    uint32_t code = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    if (digits.size() != wanted || result.ptr != digits.data() + digits.size() || result.ec != std::errc() ||
        code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail_here("this string has a broken character escape");
    append_code_point(out, code);
  }

  void read_operator(std::string& open) {
    static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    std::string op(1, text_[at_]);
    for (const auto two : kDouble)
      if (starts(at_, two)) op = two;
    if (op.size() == 1 && kSingle.find(op[0]) == std::string_view::npos) fail_here("unexpected character");
    if (op == "(" || op == "[" || op == "{") {
      open += op == "(" ? ')' : op == "[" ? ']' : '}';
    } else if (op == ")" || op == "]" || op == "}") {
      if (open.empty() || open.back() != op[0]) fail_here(fmt::format("unexpected `{}`", op));
      open.pop_back();
    }
    const size_t end = at_ + op.size();
    add(TokenKind::op, std::move(op));
    advance_to(end);
  }

  const std::string text_;
  const std::string& source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  Position position_;
  bool line_starting_ = true;
};

}  // namespace

std::string describe(const std::string& source, Position at) {
  return fmt::format("{}:{}:{}", source, at.line, at.column);
}

void fail_syntax(const std::string& source, Position at, const std::string& why) {
  fail(Exit::data,
       {.what = "the chat template cannot be read",
        .where = describe(source, at),
        .why = why,
        .fix = "change that line, or choose a chat_template within the supported part of Jinja2"});
}

std::vector<Token> tokenize(std::string_view text, const std::string& source) {
  return Lexer(text, source).run();
}

}  // namespace temper::jinja
