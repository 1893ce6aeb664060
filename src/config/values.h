#pragma once
// One value of the config between TOML, Config and JSON. Reading checks type, range, choice and format.

#include <optional>

#include "src/config/config_error.h"
#include "src/config/fields.h"
#include "src/config/toml_node.h"

namespace temper {

struct BadValue {
  std::string message;
  std::vector<Json> legal;
};

/// Puts `node` where the field points; on a defect says why and leaves the value as it was.
std::optional<BadValue> read_value(const TomlNode& node, const Field& field);

/// The value as JSON; null for an absent optional without a word of its own.
Json field_json(const Field& field);
/// JSON as TOML on one line; loading it gives the same value.
std::string toml_text(const Json& value);
/// A TOML value as JSON, dates as text, non-finite numbers as null.
Json node_json(const TomlNode& node);

/// "integer", "list of strings": for `temper help`.
std::string type_text(const Field& field);
/// The rule of a field in words: "1 to 4096", "constant, linear or cosine".
std::string rule_text(const Field& field);

}  // namespace temper
