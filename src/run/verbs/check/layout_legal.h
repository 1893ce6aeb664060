#pragma once
// Which numbers a layout key may have, where the config has one that no run could have (`tp = 0`): the key's
// own rule knows the smallest, the plan all that are legal with the other keys as they are.

#include <functional>
#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/config/config_error.h"

namespace temper {

/// Replaces `legal` of errors about the number of ranks, stages or parts of a role. `plan_errors`: those of
/// the plan of a config. Other errors, with which there is no plan, leave it as it is.
void add_legal_layouts(const std::string& config_file, const std::vector<std::string>& overrides,
                       std::vector<ConfigError>& errors,
                       const std::function<std::vector<ConfigError>(const Config&)>& plan_errors);

}  // namespace temper
