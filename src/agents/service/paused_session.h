#pragma once
// A session that has not ended, as a checkpoint keeps it: it goes on when its program asks the same again.

#include <cstdint>
#include <map>
#include <string>

#include "src/core/json.h"

namespace temper {

struct PausedSession {
  Json session = {};                         // Session::record
  std::map<size_t, int64_t> spent = {};      // by turn: tokens of the step that the pause cut
  std::map<size_t, std::string> heard = {};  // by turn under way: the text that its clients had
};

std::string paused_to_text(const PausedSession& paused);
/// Error(Exit::data): it is none. What `session` says is checked where a Session is made of it.
PausedSession paused_from_text(const std::string& text);

}  // namespace temper
