#pragma once
// What a session asked, as JSON for rollouts.

#include "src/agents/sessions/known_turns.h"

namespace temper {

/// Session::requests.
Json session_requests(const KnownTurns& turns);

}  // namespace temper
