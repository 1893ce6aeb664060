#pragma once
// The programs that play sessions, as the loop that owns sessions sees them.
//
//   loop:    harness.start(session, what the program gets)
//   thread:  starts programs, feeds them, hears them, looks at the clock; on_news
//   loop:    for (turn : harness.take_turns())  ask the policy, then harness.answer(turn.session, ...)
//            for (end : harness.take_ended())   end.again ? harness.start(end.session, ...) : done with it
//
// A session is started, has any number of turns over the pipe (a service alone), and has one end, unless the
// loop stopped it before. Sessions beyond what runs at once wait in the order in which they were started.
//
// An episode is a process per session in a fresh folder: one line of JSON on stdin,
//   {"id", "record", "seed", "base_url", "anthropic_base_url", "api_key", "model"}, then the end of stdin;
// it exits with 0, and where the last line of its stdout is {"reward": number or null, "parts": {name:
// number}} that is its reward. Any other last line is free text: nothing then says a reward. A service is
// `workers` processes that have `in_flight` sessions each:
//   in:  {"id", "start": {the same, with "reward_key"}}       a session begins
//   out: {"id", "observation": text | "messages": [..]}       its next turn; one is open at a time
//   in:  {"id", "turn", "text", "tool_calls", "finish"}       the answer
//   out: {"id", "reward": number or null, "parts", "done": true}
//   in:  {"id", "stop": why}                                  it is over, nothing more is heard of it
// Its stdin ends when nobody needs it any longer. What cannot be told apart (no JSON, an id that it was not
// given, a line of more than kMaxHarnessLine bytes) is nonsense of the worker: it is killed, and all that it
// played ends so. A worker that has died is started again, later each time while it does not get anywhere.
//
// Programs have an environment that is made, the folder as working folder and TMPDIR,
// and their pipes. They get SIGTERM, a second later SIGKILL, with all that they have started, also what has
// lost its parent; then their folder goes. They have the rights of the run: there is no sandbox.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/agents/sessions/end_reason.h"
#include "src/config/agents_config.h"
#include "src/core/helpers/helpers.h"
#include "src/core/json.h"

namespace temper {

inline constexpr size_t kMaxHarnessLine = size_t{4} << 20;

/// What a program gets of its session.
struct HarnessStart {
  std::string id;  // of the session on the server; no two that run at once have the same
  Json record;     // the data line
  uint64_t seed = 0;
  std::string base_url;            // ends in /v1
  std::string anthropic_base_url;  // does not
  std::string api_key;
  std::string reward_key;  // services alone get it
  std::string model = "policy";
};

/// `end.reason` is done, no_start, died, late or nonsense; `done` has no reward where the program gave none
/// (whether that is no_reward, functions of the config say). A failure has reward 0 with on_error = "zero".
struct HarnessEnd {
  uint64_t session = 0;
  SessionEnd end = {};
  std::string why = {};  // of a failure: a sentence, with the last lines of stderr; printable
  /// Retries are left: the loop starts it again, as a new session of the server with an id of its own (what a
  /// service says of the old one is no longer heard), or does `stop`. With
  /// on_error = "stop" and no retry left `take_ended` throws instead.
  bool again = false;
};

/// What a service said over the pipe: {"role": "user", "content": its observation}, or its messages, objects
/// that nobody has looked into.
struct HarnessTurn {
  uint64_t session = 0;
  int64_t turn = 0;  // from 0
  Json messages;
};

/// What came of a step: sessions by how they ended, tries that were followed by another one, workers that
/// took the place of others, and the seconds that sessions waited for their turn to be started.
struct HarnessCounts {
  std::array<int64_t, kEndReasons.size()> ended{};
  int64_t retries = 0, restarts = 0;
  double waited_seconds = 0;
};

class Harness {
 public:
  /// `on_news`: there is something to take; called on a thread of the harness, returns at once, does not
  /// throw. Exit::usage where env names a variable that the run does not have, or a program cannot be found.
  Harness(Helpers& helpers, HarnessConfig config, std::function<void()> on_news = {});
  /// Ends all programs.
  ~Harness();
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;

  // From any thread; nothing here waits for a program.
  /// `session`: a number of the loop's, of no other session that runs.
  void start(uint64_t session, HarnessStart start);
  /// To what `take_turns` gave. `turn` {"turn", "text", "tool_calls", "finish"}; the id is added. Nothing
  /// happens where the session has ended.
  void answer(uint64_t session, Json turn);
  /// What the program said as its turn is none: it ends with `nonsense`.
  void refuse(uint64_t session, const std::string& why);
  /// Its clock stands still from here on, and goes on again: the run does something else meanwhile. Nothing
  /// happens where it has ended.
  void pause(uint64_t session);
  void go_on(uint64_t session);
  /// Ends it without a word to the loop; `why` is said to a service. Nothing happens where it has ended.
  void stop(uint64_t session, const std::string& why);

  std::vector<HarnessTurn> take_turns();
  /// Error(Exit::data) where one failed and on_error is "stop"; KeeperLost where the keeper of the programs
  /// is gone.
  std::vector<HarnessEnd> take_ended();
  /// Until there is something to take, `seconds` at most. True: there is.
  bool wait(double seconds);

  /// The sessions that wait until one that runs has ended; none where there is room for more.
  std::vector<uint64_t> blocked() const;
  /// Sessions that wait to be started, and those that run.
  int64_t waiting() const;
  int64_t running() const;
  /// The counts of the step that ends with this call.
  HarnessCounts end_step();
  const HarnessConfig& config() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

/// The harness that a data line chooses by its key "environment"; the only one where it has none. Error(
/// Exit::data) at `where`: it names none of them, or has to and does not.
size_t chosen_harness(const std::vector<HarnessConfig>& harnesses, const Json& record,
                      const std::string& where);

}  // namespace temper
