#pragma once
// A session: all that one program asks of the policy for one sample of a data line, as a tree of turns.
//
//   door:    start = session.ask(what the request said)       join and answered: no work for the engine
//   engine:  start.prompt with SampleKey (start.seed, data position, sample), position from 0
//   loop:    session.sampled(start.turn, response, parse_turn(...)); then the door answers with
//   turn(n).answer door:    session.delivered(turn), or client_gone(turn) loop:    session.end(...);
//   samples() are what is trained
//
// A request's history is matched by messages (or, where a request brings ids, by ids) with the turns that are
// known; the deepest one is taken by its ids, and what lies behind it is made by TurnCut. Where an
// assistant's message that is not ours lies behind it, or there is no cut, the whole is rendered and a path
// of its own begins.
//
// Nothing depends on the order in which requests that know nothing of each other arrive: a turn's noise, key
// and ids of calls follow from its prompt, from what else it asked for, and from how many equal ones came
// before. Where two answers of the same request say the same in other ids, the one that was asked first
// counts as said, unless ids of calls tell which it was. Not for several threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agents/sessions/end_reason.h"
#include "src/agents/sessions/refusal.h"
#include "src/agents/turns/turn_cut.h"
#include "src/agents/turns/turn_text.h"
#include "src/core/json.h"
#include "src/rl/types.h"

namespace temper {

/// 0: no limit. `turns`: of those that were sampled, retries not counted. `turn_tokens`: sampled in one turn.
/// `session_tokens`: sampled in all; turns under way at once can each sample what was left when they began.
/// `context_tokens`: of prompt and answer of a turn.
struct SessionLimits {
  int64_t turns = 0, turn_tokens = 0, session_tokens = 0, context_tokens = 0;
};

struct SessionSetup {
  uint64_t seed = 0;  // of the run
  int64_t data_position = 0;
  int32_t sample = 0;
  std::vector<int32_t> line_prompt;     // the ids of the data line's own prompt
  std::vector<int32_t> stop_token_ids;  // ids that end turns
  int32_t num_ids = 0;                  // ids of prompts are in [0, num_ids)
  SessionLimits limits;
};

/// What a door read of a request.
struct TurnAsk {
  Json messages = {}, tools = {}, arguments = {};             // as normal_messages makes them; null: none
  std::optional<std::vector<int32_t>> prompt = std::nullopt;  // ids instead of messages
  bool trained = true;                                        // false: policy-untrained
  int64_t max_new_tokens = 0;                                 // 0: the client named none
  std::vector<std::string> stop = {};
  bool retry = false;  // the client says that it asks again
  std::string idempotency_key = {};
  int32_t choice = 0;  // which one of the answers that one request wants
};

/// What has to happen now.
struct TurnStart {
  /// sample: the engine makes the turn. join: the answer of one that is under way is this request's, too.
  /// answered: the answer is there.
  enum class Kind { sample, join, answered };
  Kind kind = Kind::sample;
  size_t turn = 0;
  // of Kind::sample
  std::vector<int32_t> prompt = {};
  int64_t max_new_tokens = 0;  // 0: without a limit
  uint64_t seed = 0;
  std::vector<std::string> stop = {};
  std::optional<Response> begun = std::nullopt;  // what an earlier run of the program had of it: it goes on
};

struct SessionTurn {
  std::optional<size_t> parent;  // the turn that it goes on from; none: its path begins with it
  std::vector<int32_t> behind;   // its prompt behind the parent's last id; all of it where it has no parent
  int64_t prompt_tokens = 0;     // of the whole prompt
  uint64_t seed = 0;
  int32_t repetition = 0;  // equal requests before it
  std::string key;         // 32 hexadecimal digits, different for each turn of a run
  bool trained = true;
  bool finished = false;   // the engine is through
  bool received = false;   // a client has the whole answer
  Response response = {};  // its routes have the rows behind the parent's
  Json answer = {};  // the assistant's message as normal_messages has it, with ids of calls; null: none yet
};

/// What is trained of a session: a leaf of its tree.
struct SessionSample {
  int32_t fork = 0;                    // 0, 1, ... in the session
  std::vector<int32_t> prompt_tokens;  // all before the first token that is trained here
  /// Mask 1: sampled, and trained here. 0: observations (with the version of the turn behind them, log-probs
  /// 0), turns of policy-untrained and those that an earlier sample trains. Text and finish are the last
  /// turn's.
  Response response;
  int32_t turns = 0;  // on the path
};

class Session {
 public:
  /// `cut` outlives it.
  Session(SessionSetup setup, const TurnCut& cut);
  /// Goes on from a record of a session with the same setup: a request that equals a recorded one gets its
  /// answer. Error(Exit::data) where it is none.
  Session(SessionSetup setup, const TurnCut& cut, const Json& record);
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// RequestError: the template refuses the messages, the last one is the assistant's, ids that the model
  /// lacks; Refusal: too long, over, a limit. Nothing has changed then.
  TurnStart ask(const TurnAsk& ask);

  /// What the engine has of a turn that stays under way.
  void begun(size_t turn, Response response);
  /// What the engine has to do for a turn that is under way.
  TurnStart start_of(size_t turn) const;
  /// The engine is through. Nothing happens when the session has ended.
  void sampled(size_t turn, Response response, const TurnText& said);
  /// The engine does not take it: as if nobody had asked, until somebody asks again.
  void withdraw(size_t turn);
  /// A client has the whole answer.
  void delivered(size_t turn);
  /// A client that waited for the answer, or was getting it, is gone.
  void client_gone(size_t turn);

  size_t turns() const;
  const SessionTurn& turn(size_t turn) const;
  /// All ids of its prompt.
  std::vector<int32_t> prompt(size_t turn) const;
  /// 9 letters and digits (Mistral's templates want exactly that) for call `index` of the turn.
  std::string call_id(size_t turn, size_t index) const;
  int64_t sampled_tokens() const;

  void end(SessionEnd end);
  const std::optional<SessionEnd>& ended() const;

  /// One for each leaf of the turns that a client received and that lead to a trained one. Each trained token
  /// is in one of them: the first whose path it is on. The path of the data line's own prompt is the first
  /// one, the others have the order of their keys.
  std::vector<SessionSample> samples() const;

  /// For checkpoints: all that was asked and answered.
  Json record() const;
  /// For rollouts: [{"turn", "parent"?, "known", "of"?, "messages" | "ids"}, ...], where the first `known`
  /// messages are those of turn `of` with its answer. In an order, and with numbers, that do not follow from
  /// what came when: a turn behind the one that it goes on from, siblings by their keys.
  Json requests() const;
  /// Requests were asked that the record does not have, and some that it has were not.
  bool diverged() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace temper
