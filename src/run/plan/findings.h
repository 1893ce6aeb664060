#pragma once
// What rules find wrong in a config.

#include <string>
#include <utility>
#include <vector>

#include "src/config/config_error.h"

namespace temper {

struct Findings {
  std::vector<ConfigError> errors;
  std::vector<std::string> warnings;
  std::vector<std::string> idle_keys;  // those of the warnings that are of keys which a longer run would heed

  void error(const std::string& key, std::string message, std::vector<Json> legal) {
    errors.push_back({key, "", std::move(message), std::move(legal)});
  }
  void warn(std::string message) { warnings.push_back(std::move(message)); }
  void idle(std::string message) {
    idle_keys.push_back(message);
    warn(std::move(message));
  }
};

}  // namespace temper
