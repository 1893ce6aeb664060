#pragma once
// What comes of sessions, on its way from the lanes to whoever asked for them.

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "src/agents/sessions/session.h"

namespace temper {

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
  void count(const std::string& name);
  std::map<std::string, double> take_counts();

 private:
  std::mutex mutex_;
  std::vector<SessionResult> ended_;
  std::vector<SessionRest> rests_;
  std::map<std::string, double> counts_;
};

}  // namespace temper
