#pragma once
// JSON values and requests in a form whose bytes are equal where they mean the same.

#include <cstdint>
#include <string>

#include "src/agents/sessions/session.h"
#include "src/core/json.h"

namespace temper {

/// Equal texts: same_value. A number that is no double is the nearest one.
std::string canonical(const Json& value);

/// A hash of what same_message compares in every case: messages that are the same have equal ones.
uint64_t message_hash(const Json& message);

/// 32 digits, equal for two requests that ask the same: messages or ids, tools, arguments, trained or not,
/// limit, stops, and which one of several answers.
std::string ask_digest(const TurnAsk& ask);

}  // namespace temper
