#pragma once
// What is trained of the turns of a session.

#include <vector>

#include "src/agents/sessions/known_turns.h"
#include "src/agents/sessions/session.h"

namespace temper {

std::vector<SessionSample> session_samples(const KnownTurns& turns);

}  // namespace temper
