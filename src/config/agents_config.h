#pragma once
// The keys of the section [rollout] with which programs play sessions: the programs, the server that they
// ask, and the limits of a session.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

inline constexpr std::array<std::string_view, 2> kHarnessKinds{"episode", "service"};
inline constexpr std::array<std::string_view, 2> kSessionModels{"policy", "policy-untrained"};
inline constexpr std::array<std::string_view, 3> kOnProgramError{"exclude", "zero", "stop"};
inline constexpr std::array<std::string_view, 3> kOnLimit{"score", "mask", "exclude"};

/// A program that plays sessions (rollout.harness).
struct HarnessConfig {
  std::string name = {};  // lines choose by it with their key "environment"; empty where there is one program
  std::vector<std::string> argv = {};
  std::string kind = "episode";      // of kHarnessKinds
  int64_t workers = 1;               // processes of a service on each rank that generates
  int64_t in_flight = 32;            // sessions at once: of each worker; of an episode's program in all
  double limit_seconds = 600;        // of a session from the start of its program
  int64_t retries = 0;               // times that a program is started anew for a session
  std::string on_error = "exclude";  // of kOnProgramError
  std::map<std::string, std::string> env = {};  // "$NAME": the variable NAME of the run
  std::map<std::string, std::string> aliases =
      {};                                // other names of models, each "policy" or "policy-untrained"
  std::vector<std::string> ignore = {};  // fields of requests that pass unread

  bool service() const { return kind == "service"; }
};

/// rollout.server.
struct ServerConfig {
  std::string address = "127.0.0.1";
  int64_t port = 0;                            // 0: the system chooses
  int64_t threads = 1;                         // for JSON, rendering, tokenizing
  int64_t max_body_bytes = int64_t{16} << 20;  // key max_body
};

/// rollout.max_turns and the keys beside it. 0: no limit.
struct SessionLimitsConfig {
  int64_t max_turns = 0;
  int64_t max_turn_tokens = 0;     // sampled in one turn
  int64_t max_session_tokens = 0;  // sampled in all
  double session_seconds = 0;      // from the start of its program
  std::string on_limit = "score";  // of kOnLimit
};

}  // namespace temper
