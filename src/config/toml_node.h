#pragma once
// TOML text as plain values with their places, so that nothing else needs the TOML library. Files are bounded
// in size and nesting before they are parsed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

struct TomlMember;

struct TomlNode {
  enum class Kind { boolean, integer, real, text, date, array, table };
  Kind kind = Kind::table;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string text;               // a string, or a date as written
  std::vector<TomlNode> items;    // array
  std::vector<TomlMember> table;  // by key, ascending
  std::string origin;             // "FILE:line" or "command line"
  std::string raw;                // command line only: the text after '='

  TomlNode* find(std::string_view key);
  const TomlNode* find(std::string_view key) const;
};

struct TomlMember {
  std::string key;
  TomlNode value;
};

/// "a string", "an integer": for messages about a wrong type.
std::string kind_name(TomlNode::Kind kind);

/// The items of a list of strings, none with a zero byte; nothing for any other value.
std::optional<std::vector<std::string>> text_items(const TomlNode& node);

/// A whole document; a defect is Error(Exit::usage) with `source`:line:column.
TomlNode parse_toml(std::string_view text, const std::string& source);

/// The right side of an override: a TOML value, or else the text itself as a string.
TomlNode parse_toml_value(const std::string& text, const std::string& origin);

/// `text` as a TOML basic string with its quotes, on one line.
std::string quote_toml(std::string_view text);
/// A key, quoted when it is not bare.
std::string quote_toml_key(std::string_view key);

}  // namespace temper
