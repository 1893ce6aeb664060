#pragma once
// What was asked at a desk as bytes: the leader of a team tells the others.

#include <string>
#include <string_view>
#include <utility>

#include "src/agents/service/engine_desk.h"

namespace temper {

/// `last`: nothing more will be asked.
std::string asked_to_bytes(const EngineDesk::Asked& asked, bool last);
std::pair<EngineDesk::Asked, bool> asked_from_bytes(std::string_view bytes);

}  // namespace temper
