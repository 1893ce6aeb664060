#pragma once
// A session on the server while its program plays it: who waits for which of its turns, and what became of
// them in this step of the run.

#include <functional>
#include <map>
#include <memory>
#include <optional>
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
  std::string refused = {};  // why there is none
  bool at_limit = false;     // it is refused because of a limit; else what it asked is no turn
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
  bool at_limit = false;                  // it was refused a turn because of a limit

  // What is asked:
  /// All answers that a request wants, or where one of them is refused none, and that refusal.
  std::vector<TurnStart> ask_all(TurnAsk ask, int32_t answers);
  /// A turn that the engine has to make, and how its text is read.
  void begin(const TurnStart& start, const TurnFormat& format, const Json& tools);
  /// A client wants it as choice `index` of an answer. Who comes late hears it from its begin.
  void add_client(const TurnStart& start, std::shared_ptr<OpenAnswer> answer, int32_t index);
  void add_pipe(size_t turn, OnPipeAnswer answer) { pipe_.emplace(turn, std::move(answer)); }
  /// A program that hears its answer over the pipe has got it.
  void tell_pipe(size_t turn);
  size_t under_way() const { return under_way_.size(); }

  // What the engine says of a turn:
  /// The rows of a turn that begins to grow; nothing where it has begun before.
  std::optional<TurnRows> grow(size_t turn, const TurnGrowth& growth);
  /// The engine does not take it: its prompt is none of this model's, or longer than its cache.
  void refuse(size_t turn, const std::string& why);
  /// It is cut, or over; then whoever waits gets it.
  void take(size_t turn, Response response);

  // Steps of the run:
  /// Tokens of this step on the path that ends with a turn.
  int64_t spent_up_to(std::optional<size_t> turn) const;
  /// The engine gets it now.
  void give(size_t turn, const std::optional<Response>& begun);
  /// It waits for the next step.
  void hold(size_t turn) { under_way_.at(turn).held = true; }
  /// A turn waits for the next step, and the engine has none.
  bool may_rest() const;
  /// Those that waited for the step that begins.
  std::vector<size_t> begin_step();
  bool rests = false;
  bool after_stop;
  /// For a checkpoint: paused_to_text.
  std::string record();

  void fail_clients(const DoorError& error) const;
  void tick(OpenAnswer::Clock::time_point now);
  SessionResult end(uint64_t number, SessionEnd end);

 private:
  TurnRows rows_of(size_t turn, int64_t found) const;
  /// A client that waits for a turn: choice `index` of its answer.
  struct Waiting {
    std::shared_ptr<OpenAnswer> answer;
    int32_t index = 0;
  };
  struct UnderWay {
    TurnFormat format;
    Json tools;
    TurnGrowth heard = {};  // what clients have been told
    int64_t had = 0;        // tokens when the engine got it
    bool held = false;      // for the next step; else the engine has it
  };
  /// Who has got what he asked for, and who has left without it.
  void look_at_clients();

  // By turn:
  std::map<size_t, std::vector<Waiting>> waiting_;
  std::map<size_t, OnPipeAnswer> pipe_;
  std::map<size_t, UnderWay> under_way_;
  std::map<size_t, std::string> heard_before_;  // of those under way that nobody has asked for again
  std::map<size_t, int64_t> spent_;             // tokens of this step
  std::map<size_t, int64_t> found_;             // rows of its prompt that lay in pages
};

}  // namespace temper
