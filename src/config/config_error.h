#pragma once
// One broken rule of a config: the key to change, why, and values that may be written there. `legal` is empty
// when no list of values can help (a path that does not exist, an unknown key); otherwise writing any one of
// them at `key` removes this error.

#include <string>
#include <vector>

#include "src/core/json.h"

namespace temper {

struct ConfigError {
  std::string key;
  std::string where;    // "FILE:line", "command line", or empty when the value is a default
  std::string message;  // with the numbers, and the rule in words
  std::vector<Json> legal;
};

/// All errors as one block: Error(Exit::usage). `source` is the config file.
[[noreturn]] void fail_config(const std::string& source, const std::vector<ConfigError>& errors);

/// "8, 16 or 32", values as they are written in TOML.
std::string legal_text(const std::vector<Json>& legal);

}  // namespace temper
