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

/// A place in the template, and what stands there.
class Cursor {
 public:
  Cursor(std::string_view text, const std::string& source)
      : text_(normalize_newlines(text)), source_(source) {}

  const std::string& text() const { return text_; }
  size_t at() const { return at_; }
  bool at_end() const { return at_ >= text_.size(); }
  Position position() const { return position_; }
  [[noreturn]] void fail_at(Position place, const std::string& why) const {
    fail_syntax(source_, place, why);
  }
  [[noreturn]] void fail_here(const std::string& why) const { fail_at(position_, why); }

  bool starts(size_t at, std::string_view what) const { return text_.compare(at, what.size(), what) == 0; }
  char sign_at(size_t at) const { return starts(at, "-") || starts(at, "+") ? text_[at] : char{0}; }
  bool digit_at(size_t at) const { return at < text_.size() && is_digit(text_[at]); }

  size_t skip_space(size_t at) const {
    while (at < text_.size()) {
      size_t next = at;
      if (!is_space(next_code_point(text_, next))) break;
      at = next;
    }
    return at;
  }

  /// Where a tag end `closing` ("%}", "}}" or "#}") at `at` ends together with the white space it takes, or
  /// npos.
  size_t tag_end(size_t at, std::string_view closing, bool trim_newline) const {
    if (starts(at, "-") && starts(at + 1, closing)) return skip_space(at + 3);
    if (trim_newline && starts(at, "+") && starts(at + 1, closing)) return at + 3;
    if (!starts(at, closing)) return std::string::npos;
    return at + 2 + (trim_newline && starts(at + 2, "\n"));
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

 private:
  const std::string text_;
  const std::string& source_;
  size_t at_ = 0;
  Position position_;
};

void append_escape(const Cursor& cursor, std::string& out, std::string_view digits, size_t wanted, int base) {
  uint32_t code = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
  if (digits.size() != wanted || result.ptr != digits.data() + digits.size() || result.ec != std::errc() ||
      code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
    cursor.fail_here("this string has a broken character escape");
  append_code_point(out, code);
}

/// The value of a string that stands at the cursor as `raw` between its quotes.
std::string unescape(const Cursor& cursor, std::string_view raw) {
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
      append_escape(cursor, out, raw.substr(i + 1, digits), digits, 16);
      i += digits;
    } else if (c >= '0' && c <= '7') {
      size_t digits = 1;
      while (digits < 3 && i + digits < raw.size() && raw[i + digits] >= '0' && raw[i + digits] <= '7')
        ++digits;
      append_escape(cursor, out, raw.substr(i, digits), digits, 8);
      i += digits - 1;
    } else if (c == 'N' || static_cast<unsigned char>(c) >= 0x80) {
      cursor.fail_here("this string has an escape that is not supported");
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

/// The inside of a tag: names, numbers, strings, operators, and the end of the tag.
class ExpressionLexer {
 public:
  ExpressionLexer(Cursor& cursor, std::vector<Token>& tokens)
      : cursor_(cursor), text_(cursor.text()), tokens_(tokens) {}

  /// Up to the end of the tag; a missing end is found by the parser.
  void run(bool print) {
    while (!cursor_.at_end()) {
      const size_t at = cursor_.at();
      const size_t end = !open_.empty() ? std::string::npos
                         : print        ? cursor_.tag_end(at, "}}", false)
                                        : cursor_.tag_end(at, "%}", true);
      if (end != std::string::npos) return add(print ? TokenKind::print_end : TokenKind::tag_end, end);
      const char c = text_[at];
      if (const size_t next = cursor_.skip_space(at); next != at) {
        cursor_.advance_to(next);
      } else if (is_digit(c)) {
        read_number();
      } else if (is_name_start(c)) {
        read_name();
      } else if (c == '\'' || c == '"') {
        read_string();
      } else {
        read_operator();
      }
    }
  }

 private:
  /// A token from the cursor to `end`, where the cursor is then.
  void add(TokenKind kind, size_t end, std::string text = {}) {
    tokens_.push_back({.kind = kind, .at = cursor_.position(), .text = std::move(text)});
    cursor_.advance_to(end);
  }

  void read_name() {
    const size_t begin = cursor_.at();
    size_t end = begin;
    while (end < text_.size() && is_name_char(text_[end])) ++end;
    add(TokenKind::name, end, text_.substr(begin, end - begin));
  }

  /// Digits, with single underscores between them.
  size_t skip_digits(size_t at) const {
    while (cursor_.digit_at(at) ||
           (cursor_.starts(at, "_") && is_digit(text_[at - 1]) && cursor_.digit_at(at + 1)))
      ++at;
    return at;
  }

  void read_number() {
    const size_t begin = cursor_.at();
    size_t end = skip_digits(begin);
    bool real = false;
    const bool attribute = begin > 0 && text_[begin - 1] == '.';  // x.0.1 is two subscripts
    if (!attribute && cursor_.starts(end, ".") && cursor_.digit_at(end + 1)) {
      end = skip_digits(end + 1);
      real = true;
    }
    if (!attribute && (cursor_.starts(end, "e") || cursor_.starts(end, "E"))) {
      const size_t digits = end + 1 + (cursor_.sign_at(end + 1) != 0);
      if (cursor_.digit_at(digits)) {
        end = skip_digits(digits);
        real = true;
      }
    }
    if (end < text_.size() && is_name_char(text_[end]))
      cursor_.fail_here("only plain decimal numbers are supported");
    std::string digits = text_.substr(begin, end - begin);
    std::erase(digits, '_');
    tokens_.push_back(number_token(digits, real));
    cursor_.advance_to(end);
  }

  Token number_token(const std::string& digits, bool real) const {
    Token token{.kind = real ? TokenKind::real : TokenKind::integer, .at = cursor_.position()};
    if (real) {
      token.real = parse_real(digits).value_or(0);
    } else if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) {
      cursor_.fail_here("a number may not start with 0");
    } else if (auto value = parse_integer(digits, 10)) {
      token.integer = *value;
    } else {
      cursor_.fail_here(fmt::format("{} is beyond 64-bit integers", digits));
    }
    return token;
  }

  void read_string() {
    const size_t begin = cursor_.at() + 1;
    size_t end = begin;
    while (end < text_.size() && text_[end] != text_[begin - 1]) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) cursor_.fail_here("this string has no end");
    add(TokenKind::text, end + 1, unescape(cursor_, std::string_view(text_).substr(begin, end - begin)));
  }

  void read_operator() {
    static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    std::string op(1, text_[cursor_.at()]);
    for (const auto two : kDouble)
      if (cursor_.starts(cursor_.at(), two)) op = two;
    if (op.size() == 1 && kSingle.find(op[0]) == std::string_view::npos)
      cursor_.fail_here("unexpected character");
    if (op == "(" || op == "[" || op == "{") {
      open_ += op == "(" ? ')' : op == "[" ? ']' : '}';
    } else if (op == ")" || op == "]" || op == "}") {
      if (open_.empty() || open_.back() != op[0]) cursor_.fail_here(fmt::format("unexpected `{}`", op));
      open_.pop_back();
    }
    add(TokenKind::op, cursor_.at() + op.size(), op);
  }

  Cursor& cursor_;
  const std::string& text_;
  std::vector<Token>& tokens_;
  std::string open_;  // brackets that wait for their partner: inside of them a tag does not end
};

/// The template around the tags: text, comments and raw blocks; white space goes or stays as the tags say.
class TemplateLexer {
 public:
  TemplateLexer(std::string_view text, const std::string& source)
      : cursor_(text, source), text_(cursor_.text()) {}

  std::vector<Token> run() {
    while (!cursor_.at_end()) {
      const size_t tag = find_tag(cursor_.at());
      if (tag == std::string::npos) {
        add_data(text_.size(), 0, '{');
        break;
      }
      read_tag(tag);
      line_starting_ = cursor_.at() > 0 && text_[cursor_.at() - 1] == '\n';
    }
    add(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  void add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .at = cursor_.position(), .text = std::move(text)});
  }

  size_t find_tag(size_t from) const {
    for (size_t at = text_.find('{', from); at != std::string::npos; at = text_.find('{', at + 1))
      if (cursor_.starts(at, "{%") || cursor_.starts(at, "{{") || cursor_.starts(at, "{#")) return at;
    return std::string::npos;
  }

  /// The text before the tag at `tag`, and the tag.
  void read_tag(size_t tag) {
    const char type = text_[tag + 1];
    const char sign = cursor_.sign_at(tag + 2);
    const size_t inside = tag + 2 + (sign != 0);
    add_data(tag, sign, type);
    if (type == '#') return skip_comment(inside);
    if (const size_t raw = type == '%' ? raw_begin(inside) : std::string::npos; raw != std::string::npos)
      return read_raw(raw);
    add(type == '{' ? TokenKind::print_begin : TokenKind::tag_begin);
    cursor_.advance_to(inside);
    ExpressionLexer(cursor_, tokens_).run(type == '{');
  }

  /// Text up to `end`, where a tag of this sign and type begins.
  void add_data(size_t end, char sign, char type) {
    std::string_view data = std::string_view(text_).substr(cursor_.at(), end - cursor_.at());
    if (sign == '-') {
      data = strip_space(data, {.left = false});
    } else if (sign != '+' && type != '{') {
      const size_t newline = data.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && strip_space(data.substr(line)).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) add(TokenKind::data, std::string(data));
    cursor_.advance_to(end);
  }

  void skip_comment(size_t begin) {
    for (size_t at = begin; at < text_.size(); ++at) {
      const size_t end = cursor_.tag_end(at, "#}", true);
      if (end == std::string::npos) continue;
      cursor_.advance_to(end);
      return;
    }
    cursor_.fail_here("this comment has no end `#}`");
  }

  /// End of a `{% raw %}` tag whose inside begins at `inside`, or npos.
  size_t raw_begin(size_t inside) const {
    const size_t word = cursor_.skip_space(inside);
    if (!cursor_.starts(word, "raw")) return std::string::npos;
    const size_t end = cursor_.skip_space(word + 3);
    return cursor_.starts(end, "+") ? std::string::npos : cursor_.tag_end(end, "%}", false);
  }

  void read_raw(size_t begin) {
    const Position opened = cursor_.position();
    cursor_.advance_to(begin);
    line_starting_ = text_[begin - 1] == '\n';
    for (size_t at = text_.find("{%", begin); at != std::string::npos; at = text_.find("{%", at + 1)) {
      const char sign = cursor_.sign_at(at + 2);
      const size_t word = cursor_.skip_space(at + 2 + (sign != 0));
      if (!cursor_.starts(word, "endraw")) continue;
      const size_t end = cursor_.tag_end(cursor_.skip_space(word + 6), "%}", true);
      if (end == std::string::npos) continue;
      add_data(at, sign, '%');
      cursor_.advance_to(end);
      return;
    }
    cursor_.fail_at(opened, "this raw block has no end `{% endraw %}`");
  }

  Cursor cursor_;
  const std::string& text_;
  std::vector<Token> tokens_;
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
  return TemplateLexer(text, source).run();
}

}  // namespace temper::jinja
