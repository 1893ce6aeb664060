#pragma once
// What a program says of a reward, whoever started it: {"reward": number, "parts": {name: number, ...}}.

#include <string>
#include <string_view>

#include "src/core/json.h"
#include "src/rl/reward.h"

namespace temper {

/// Reads it out of an object that a program wrote, whose other keys are left alone. Returns what is wrong, or
/// nothing. A "reward" that is null or missing gives no value, which is wrong where one is `needed`.
std::string read_verdict(const Json& object, bool needed, Verdict& verdict);

/// The begin of a line of a program, for a message.
std::string shown_line(std::string_view line);

}  // namespace temper
