#pragma once
// What comes of sessions, on its way from the lanes to whoever asked for them.

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agents/sessions/session.h"

namespace temper {

/// Rows of a turn's prompt: all, those that lay in pages, and those that the turns before it had computed in
/// this step and the engine has to compute again.
struct TurnRows {
  int64_t prompt = 0, found = 0, again = 0;
};

/// What a session left when it ended.
struct SessionResult {
  uint64_t number = 0;
  SessionEnd end = {};
  std::vector<SessionSample> samples = {};
  int32_t turns = 0;
  Json requests = {};
};

/// A session that goes on in another step, or after a stop.
struct SessionRest {
  uint64_t number = 0;
  std::string record;  // paused_to_text
};

/// Counts: of what clients asked in vain, and the like.
class SessionResults {
 public:
  void put(SessionResult result);
  std::vector<SessionResult> take();
  void rest(SessionRest rest);
  std::vector<SessionRest> take_rests();
  void count(const std::string& name, double times = 1);
  /// Whether nobody has asked so before: what is said once.
  bool is_first(const std::string& name);
  void count(const std::optional<TurnRows>& rows);
  std::map<std::string, double> take_counts();

 private:
  std::mutex mutex_;
  std::vector<SessionResult> ended_;
  std::vector<SessionRest> rests_;
  std::map<std::string, double> counts_;
  std::set<std::string> said_;
};

}  // namespace temper
