#include "src/config/toml_node.h"

#include <utf8proc.h>

#include <algorithm>
#include <sstream>

#include "src/core/check.h"
#include "src/core/text/printable.h"

namespace temper {
/// Some malformed files break an assertion of the library's parser; that is an error of the file, not a
/// crash.
struct TomlAssertion {
  const char* expression;
};
[[noreturn]] static void fail_toml_assertion(const char* expression) { throw TomlAssertion{expression}; }
}  // namespace temper
#define TOML_ASSERT(expression) ((expression) ? void() : ::temper::fail_toml_assertion(#expression))
#include <toml++/toml.h>

namespace temper {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr int64_t kMaxDots = 1000;  // each dot of a key nests one table deeper, and the library recurses
constexpr int kMaxDepth = 64;

/// Index after the string that begins at `at`. An unclosed one ends with its line: the parser stops there
/// too.
size_t skip_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string_view rest = text.substr(at);
  const bool lines = rest.size() >= 3 && rest[1] == quote && rest[2] == quote;
  for (size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (text[i] == '\n' && !lines) {
      return i;
    } else if (text[i] == quote) {
      if (!lines) return i + 1;
      if (text.substr(i, 3) != std::string(3, quote)) continue;
      size_t end = i + 3;  // up to two quotes before the closing three are the string's
      while (end < i + 5 && end < text.size() && text[end] == quote) ++end;
      return end;
    }
  }
  return text.size();
}

/// Bytes of the character of UTF-8 at `at`; 0 where there is none.
size_t character_at(std::string_view text, size_t at, utf8proc_int32_t& code) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
  const auto length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  return static_cast<size_t>(std::max<utf8proc_ssize_t>(0, length));
}

/// Characters of a basic string beyond ASCII as escapes; what is not UTF-8 stays, for the parser to refuse.
/// So does an escape of such a character, of which a question mark is left.
std::string escaped(std::string_view text) {
  std::string out;
  bool escape = false;
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = 0;
    const size_t bytes = text[at] & 0x80 ? character_at(text, at, code) : 0;
    out += bytes == 0 ? std::string(1, text[at]) : escape ? "?" : fmt::format("\\U{:08x}", code);
    escape = !escape && text[at] == '\\';
    at += std::max<size_t>(1, bytes);
  }
  return out;
}

/// The library's test for white space has no answer for many characters beyond ASCII. It asks where no string
/// is, so there may be none of them (`outside`: the first, or npos), and where a line of a basic string goes
/// on, so these get escapes.
std::string without_such_characters(std::string_view text, size_t& outside) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  std::string out;
  for (size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; at < text.size();) {
    const size_t begin = at;
    outside = at;
    if (text[at] & 0x80) return out;
    if (text[at] == '"' || text[at] == '\'') {
      at = skip_string(text, at);
      const std::string_view string = text.substr(begin, at - begin);
      out += text[begin] == '"' ? escaped(string) : std::string(string);
    } else {
      at = text[at] == '#' ? std::min(text.find('\n', at), text.size()) : at + 1;
      out += text.substr(begin, at - begin);
    }
  }
  outside = std::string_view::npos;
  return out;
}

[[noreturn]] void fail_outside(std::string_view text, size_t at, const std::string& source) {
  utf8proc_int32_t code = 0;
  const std::string_view character = text.substr(at, std::max<size_t>(1, character_at(text, at, code)));
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
  fail(Exit::usage, {.what = "the config is not TOML",
                     .where = fmt::format("{}:{}", source, line),
                     .why = printable(character) + " stands outside of quotes",
                     .fix = "put quotes around keys and texts with such characters, or remove it"});
}

/// Dots outside strings and comments: those of keys and of numbers.
int64_t count_dots(std::string_view text) {
  int64_t dots = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"' || text[at] == '\'') {
      at = skip_string(text, at);
    } else if (text[at] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else {
      dots += text[at++] == '.' ? 1 : 0;
    }
  }
  return dots;
}

[[noreturn]] void fail_depth(const std::string& source, const std::string& why) {
  fail(Exit::usage, {.what = "the config is nested too deeply or is not TOML",
                     .where = source,
                     .why = why,
                     .fix = "give the path of a TOML config file"});
}

void check_bounds(std::string_view text, const std::string& source) {
  if (text.size() > kMaxBytes)
    fail(Exit::usage, {.what = "the config is too large",
                       .where = source,
                       .why = fmt::format("it has {} bytes, at most {} are read", text.size(), kMaxBytes),
                       .fix = "give the path of a TOML config file"});
  if (const int64_t dots = count_dots(text); dots > kMaxDots)
    fail_depth(source, fmt::format("it holds {} dots outside strings, at most {} are read", dots, kMaxDots));
}

class Converter {
 public:
  explicit Converter(const std::string& source) : source_(source) {}

  TomlNode convert(const toml::node& node, int depth = 0) const {
    if (depth > kMaxDepth)
      fail_depth(source_, fmt::format("tables and lists nest deeper than {}", kMaxDepth));
    TomlNode out;
    const auto line = node.source().begin.line;
    out.origin = source_.empty() || line == 0 ? source_ : fmt::format("{}:{}", source_, line);
    if (const auto* table = node.as_table()) {
      for (const auto& [key, value] : *table)
        out.table.push_back({std::string(key.str()), convert(value, depth + 1)});
    } else if (const auto* array = node.as_array()) {
      out.kind = TomlNode::Kind::array;
      for (const auto& value : *array) out.items.push_back(convert(value, depth + 1));
    } else {
      scalar(node, out);
    }
    return out;
  }

 private:
  static void scalar(const toml::node& node, TomlNode& out) {
    if (const auto* text = node.as_string()) {
      out.kind = TomlNode::Kind::text;
      out.text = text->get();
    } else if (const auto* integer = node.as_integer()) {
      out.kind = TomlNode::Kind::integer;
      out.integer = integer->get();
    } else if (const auto* real = node.as_floating_point()) {
      out.kind = TomlNode::Kind::real;
      out.real = real->get();
    } else if (const auto* boolean = node.as_boolean()) {
      out.kind = TomlNode::Kind::boolean;
      out.boolean = boolean->get();
    } else {
      out.kind = TomlNode::Kind::date;
      std::ostringstream written;
      node.visit([&](const auto& value) {
        if constexpr (toml::is_date<decltype(value)> || toml::is_time<decltype(value)> ||
                      toml::is_date_time<decltype(value)>)
          written << value.get();
      });
      out.text = written.str();
    }
  }

  const std::string& source_;
};

template <class Table>
auto find_in(Table& table, std::string_view key) -> decltype(&table.front().value) {
  for (auto& [name, node] : table)
    if (name == key) return &node;
  return nullptr;
}

}  // namespace

TomlNode* TomlNode::find(std::string_view key) { return find_in(table, key); }
const TomlNode* TomlNode::find(std::string_view key) const { return find_in(table, key); }

std::string kind_name(TomlNode::Kind kind) {
  switch (kind) {
    case TomlNode::Kind::boolean:
      return "true or false";
    case TomlNode::Kind::integer:
      return "an integer";
    case TomlNode::Kind::real:
      return "a number with a fraction";
    case TomlNode::Kind::text:
      return "a string";
    case TomlNode::Kind::date:
      return "a date or time";
    case TomlNode::Kind::array:
      return "a list";
    case TomlNode::Kind::table:
      return "a table";
  }
  return "";
}

TomlNode parse_toml(std::string_view text, const std::string& source) {
  check_bounds(text, source);
  size_t outside = 0;
  const std::string plain = without_such_characters(text, outside);
  if (outside != std::string_view::npos) fail_outside(text, outside, source);
  try {
    const toml::table document = toml::parse(plain);
    return Converter(source).convert(document);
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    fail(Exit::usage, {.what = "the config is not TOML",
                       .where = fmt::format("{}:{}:{}", source, at.line, at.column),
                       .why = std::string(error.description()),
                       .fix = "correct this line; strings need quotes, a key may be written once"});
  } catch (const TomlAssertion& assertion) {
    fail(Exit::usage, {.what = "the config is not TOML",
                       .where = source,
                       .why = fmt::format("the parser found `{}` broken", assertion.expression),
                       .fix = "look for stray characters where a key should begin"});
  }
}

TomlNode parse_toml_value(const std::string& text, const std::string& origin) {
  check_bounds(text, origin);
  // The text may itself hold line ends and further keys: then it is no value but a string.
  for (const std::string& value : {text, quote_toml(text)}) {
    size_t outside = 0;
    const std::string plain = without_such_characters("v = " + value, outside);
    if (outside != std::string_view::npos) continue;
    try {
      const toml::table document = toml::parse(plain);
      if (document.size() != 1) continue;
      TomlNode node = Converter("").convert(*document.get("v"));
      node.origin = origin;
      node.raw = text;
      return node;
    } catch (const toml::parse_error&) {
      continue;
    } catch (const TomlAssertion&) {
      continue;
    }
  }
  fail(Exit::usage, {.what = "an override is not valid UTF-8",
                     .where = origin,
                     .why = fmt::format("one of its {} bytes begins no character", text.size()),
                     .fix = "write it in UTF-8"});
}

std::string quote_toml(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::optional<std::vector<std::string>> text_items(const TomlNode& node) {
  if (node.kind != TomlNode::Kind::array) return {};
  std::vector<std::string> texts;
  for (const TomlNode& item : node.items) {
    if (item.kind != TomlNode::Kind::text || item.text.find('\0') != std::string::npos) return {};
    texts.push_back(item.text);
  }
  return texts;
}

std::string quote_toml_key(std::string_view key) {
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
  });
  return bare ? std::string(key) : quote_toml(key);
}

}  // namespace temper
