#pragma once
// Keys of the contract whose features are not in this version. The values that mean "off" are accepted, so
// that a config written for a later version runs when it does not use them; everything else is refused by
// name.

#include <string>
#include <string_view>
#include <vector>

#include "src/config/config_error.h"

namespace temper {

struct LaterKey {
  std::string key;
  std::vector<Json> off;  // accepted; the first is the default. Empty: none is
  std::string feature;    // what it would switch on
};

/// Also holds keys that Config has, limited to some of their values.
std::vector<LaterKey> later_keys();

/// The entry of exactly this key, or null.
const LaterKey* find_later(const std::vector<LaterKey>& list, std::string_view key);

/// Numbers are compared by value: 1 and 1.0 are both off where one is.
bool is_off(const LaterKey& later, const Json& value);
ConfigError later_error(const LaterKey& later, const Json& value, const std::string& where);

}  // namespace temper
