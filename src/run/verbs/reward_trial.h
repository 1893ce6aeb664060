#pragma once
// What `temper check` asks of reward programs: one start, one answer.

#include <string>
#include <vector>

#include "src/config/config.h"
#include "src/core/json.h"

namespace temper {

/// Scores the answer of the first prompt of data.train as if a policy had said it: {"prompt", "response",
/// "reward" or null, "parts", "seconds"}. The program's start is in `seconds`. Why there is no reward is
/// logged.
Json try_rewards(const Config& config);

/// For people.
std::string trial_text(const Json& trial);

}  // namespace temper
