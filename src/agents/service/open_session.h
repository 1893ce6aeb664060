#pragma once
// A session on the server while its program plays it: who waits for which of its turns.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agents/service/engine_desk.h"
#include "src/agents/service/open_answer.h"
#include "src/agents/sessions/session.h"

namespace temper {

/// What a program hears over its pipe.
struct PipeAnswer {
  Json turn = {};            // {"text", "tool_calls", "finish"}
  std::string refused = {};  // why there is none
  bool at_limit = false;     // it is refused because of a limit; else what it asked is no turn
};
using OnPipeAnswer = std::function<void(const PipeAnswer&)>;

struct OpenSession {
  /// A client that waits for a turn: choice `index` of its answer.
  struct Waiting {
    std::shared_ptr<OpenAnswer> answer;
    int32_t index = 0;
  };
  /// What a turn that is under way has to be told with.
  struct UnderWay {
    TurnFormat format;
    Json tools;
    std::vector<DeskNews::Grown> heard = {};  // so far
  };

  /// All answers that a request wants, or where one of them is refused none, and that refusal.
  std::vector<TurnStart> ask_all(TurnAsk ask, int32_t answers);
  /// A client that wants the answer to a turn. Who comes late hears it from its begin.
  void join(const TurnStart& start, const Waiting& client);
  /// Who has got what he asked for, and who has left without it.
  void look_at_clients();

  // What the engine says of a turn.
  void grow(size_t turn, const DeskNews::Grown& grown);
  void finish(size_t turn, const Response& response);
  /// The engine does not take it: its prompt is none of this model's, or longer than its cache.
  void refuse(size_t turn, const std::string& why);
  /// A program that hears its answer over the pipe has got it.
  void tell_pipe(size_t turn);

  Session session;
  int64_t data_position = 0;
  int32_t sample = 0;
  std::optional<SessionEnd> posted = {};                // the reward that came over HTTP
  std::map<size_t, std::vector<Waiting>> waiting = {};  // by turn
  Json said = Json::array();                            // over the pipe, in both directions
  std::map<size_t, OnPipeAnswer> pipe = {};             // by turn
  std::map<size_t, UnderWay> under_way = {};            // by turn
  bool at_limit = false;                                // it was refused a turn because of a limit
};

}  // namespace temper
