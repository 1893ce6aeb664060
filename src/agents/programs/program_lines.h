#pragma once
// What programs that play sessions are told, and what they say.

#include <optional>
#include <string>
#include <string_view>

#include "src/agents/programs/harness.h"
#include "src/rl/rewards/verdict_line.h"

namespace temper {

/// The line of an episode, or what stands behind "start" for a service.
Json start_json(const HarnessStart& start, bool service);

/// A line of JSON whose nesting is bounded; none: it is no such line.
std::optional<Json> read_line(std::string_view line);

/// The reward and parts of a line that has them; says what is wrong, or nothing.
std::string read_reward(const Json& line, SessionEnd& end);

/// An episode's last line: what it says of the reward, if it is about one. `whole`: it was not too long.
std::string read_last_line(std::string_view line, bool whole, SessionEnd& end);

/// The messages of a service's turn; says what is wrong, or nothing.
std::string read_turn(const Json& line, Json& messages);

}  // namespace temper
