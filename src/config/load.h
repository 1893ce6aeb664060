#pragma once
// Reading a config with every error of it, for `temper check`; load_config (config.h) is the same and stops.

#include "src/config/config.h"
#include "src/config/config_error.h"

namespace temper {

struct ConfigReading {
  LoadedConfig loaded;
  std::vector<ConfigError> errors;  // empty: `loaded` is complete, each value legal by itself
};

/// A path that does not exist, or text that is no TOML, is Error(Exit::usage); everything else goes into
/// `errors`.
ConfigReading read_config(const std::string& path, const std::vector<std::string>& overrides,
                          std::span<const RoleTraits> roles = built_in_role_traits());

/// What an earlier run has written down of itself (dump_config, perhaps of another version): keys that are
/// not known any more are passed over, absent ones have their default. Text that is no TOML is
/// Error(Exit::usage).
Config read_dumped_config(const std::string& text, const std::string& source,
                          std::span<const RoleTraits> roles = built_in_role_traits());

/// A config in which nothing but algorithm.name is written.
Config config_defaults(const std::string& method);

/// The [rollout] section with defaults and `rollout.key=value` arguments alone (verbs without a config file).
RolloutConfig load_rollout_overrides(const std::vector<std::string>& overrides);

/// "" when `text` can be an override, else why not.
std::string override_defect(const std::string& text);

}  // namespace temper
