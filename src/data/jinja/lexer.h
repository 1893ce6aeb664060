#pragma once
// Splits a template into text, tags and the tokens inside tags, as Jinja2 does with trim_blocks and
// lstrip_blocks: the newline behind a block tag goes, blanks before a block tag that starts its line go, `-`
// at either end of a tag strips all white space on that side, `+` keeps it. Comments and raw blocks are
// resolved here.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace temper::jinja {

struct Position {
  int line = 1;
  int column = 1;
};

enum class TokenKind : uint8_t {
  data,
  print_begin,
  print_end,
  tag_begin,
  tag_end,
  name,
  text,
  integer,
  real,
  op,
  end
};

struct Token {
  TokenKind kind;
  Position at;
  std::string text = {};  // data, name, operator, or the value of a string
  int64_t integer = 0;
  double real = 0;
};

/// `where` of an error in a template.
std::string describe(const std::string& source, Position at);
/// Exit::data for a template that is wrong or outside of what is supported.
[[noreturn]] void fail_syntax(const std::string& source, Position at, const std::string& why);

/// The last token is always `end`.
std::vector<Token> tokenize(std::string_view text, const std::string& source);

}  // namespace temper::jinja
