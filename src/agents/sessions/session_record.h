#pragma once
// A session as JSON, for checkpoints: all of it.

#include <optional>

#include "src/agents/sessions/known_turns.h"
#include "src/agents/sessions/session.h"

namespace temper {

Json session_record(const KnownTurns& turns, const std::optional<SessionEnd>& end);

/// `turns` is empty. Where the session had not ended, nobody has asked for its turns yet. Error(Exit::data):
/// it is no record of a session.
void read_session_record(const Json& record, KnownTurns& turns, std::optional<SessionEnd>& end);

}  // namespace temper
