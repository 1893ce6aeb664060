#pragma once
// A session as its lane has it: who waits for which turn, and what became of its turns in this step.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/agents/service/open_answer.h"
#include "src/agents/service/paused_session.h"
#include "src/agents/service/session_results.h"
#include "src/agents/sessions/session.h"

namespace temper {

/// What a program hears over its pipe.
struct PipeAnswer {
  Json turn = {};            // {"text", "tool_calls", "finish"}
  std::string refused = {};  // why there is none: what it asked is no turn
};
using OnPipeAnswer = std::function<void(const PipeAnswer&)>;

class OpenSession {
 public:
  /// `paused`: what a session of a record has beyond it; `after_stop`: in the step that was cut.
  OpenSession(const SessionSetup& setup, Session of, const PausedSession& paused, bool after_stop);

  Session session;
  const int64_t data_position;
  const int32_t sample;
  std::optional<SessionEnd> posted = {};  // the reward that came over HTTP
  Json said = Json::array();              // over the pipe, in both directions

  /// How the turns of a request are read when they are over.
  void expect(size_t turn, const TurnFormat& format, const Json& tools);
  /// Choice `index` of an answer is the turn.
  void add_client(size_t turn, std::shared_ptr<OpenAnswer> answer, int32_t index);
  void add_pipe(size_t turn, OnPipeAnswer answer) { pipe_.emplace(turn, std::move(answer)); }
  /// A program that hears its answer over the pipe has got it.
  void tell_pipe(size_t turn);

  // What the engine says:
  void grow(size_t turn, const TurnGrowth& growth);
  void refuse(size_t turn, const std::string& why);
  /// It is cut, or over; then whoever waits gets it.
  void take(size_t turn, Response response);

  // Steps of the run:
  /// Tokens of this step on the path that ends with a turn.
  int64_t spent_up_to(std::optional<size_t> turn) const;
  /// It goes on with what an earlier step, or run of the program, had of it.
  void begin_with(size_t turn, const Response& begun);
  /// The engine gets it now.
  void give(size_t turn, const std::optional<Response>& begun);
  /// It waits for the next step.
  void hold(size_t turn) { held_.insert(turn); }
  /// A turn waits for the next step, and the engine has none.
  bool may_rest() const { return !rests && !held_.empty() && at_engine_.empty(); }
  /// Those that waited for the step that begins.
  std::set<size_t> begin_step();
  bool rests = false;
  bool after_stop;
  /// For a checkpoint: paused_to_text.
  std::string record() const;

  void fail_clients(const DoorError& error) const;
  void tick(OpenAnswer::Clock::time_point now);
  SessionResult end(uint64_t number, SessionEnd end);

 private:
  /// A client that waits for a turn: choice `index` of its answer.
  struct Waiting {
    std::shared_ptr<OpenAnswer> answer;
    int32_t index = 0;
    bool seemed_gone = false;  // when it was looked at last
  };
  void look_at_clients();

  // By turn:
  std::map<size_t, std::vector<Waiting>> waiting_;
  std::map<size_t, OnPipeAnswer> pipe_;
  std::map<size_t, TurnFormat> formats_;
  std::map<size_t, Json> tools_;
  std::map<size_t, TurnGrowth> heard_;   // of those under way: what clients have been told
  std::map<size_t, int64_t> at_engine_;  // with the tokens that they had when it got them
  std::map<size_t, int64_t> spent_;      // tokens of this step
  std::set<size_t> held_;
};

}  // namespace temper
