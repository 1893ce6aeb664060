#pragma once
// What a session knows, and what it makes of a request.

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/agents/sessions/known_turns.h"
#include "src/agents/sessions/session.h"

namespace temper {

struct Session::State {
  SessionSetup setup;
  const TurnCut& cut;
  KnownTurns turns = {};
  std::unordered_map<std::string, std::vector<size_t>> by_ask = {};  // ask_digest -> turns, as asked
  std::unordered_map<std::string, int32_t> repetitions = {};         // request_digest -> turns
  bool resumed = false, asked_beyond = false;                        // beyond the record that it goes on from
  std::optional<SessionEnd> end = {};

  TurnStart ask(const TurnAsk& ask);
  /// A turn that is new among `turns`, in the tables.
  void enter(size_t turn);
  TurnStart engine_start(size_t turn) const;

 private:
  struct Placed {
    KnownTurn turn;
    std::vector<int32_t> prompt;
    size_t depth = 0;  // messages that its parent knows
  };

  /// An earlier request that this one is again.
  std::optional<size_t> asked_before(const TurnAsk& ask, const std::string& digest) const;
  TurnStart again(size_t turn);
  /// A turn of the record that equals this request, and that nobody asked for since.
  std::optional<size_t> recorded(const std::string& digest) const;
  TurnStart claim(size_t turn);
  /// What has the answers of these: the turn's and those that it goes on from.
  void receive(std::optional<size_t> turn);

  Placed place(const TurnAsk& ask) const;
  /// Ids behind a known turn; nullopt: the whole is rendered.
  std::optional<std::vector<int32_t>> behind(const TurnAsk& ask, const KnownTurns::Known& known) const;
  void check_prompt(const TurnAsk& ask, const Placed& placed) const;
  /// The limit of the turn's tokens, 0 without one; Refusal where none is left.
  int64_t room(const TurnAsk& ask, int64_t prompt_tokens) const;
  /// What follows from the prompt: noise, key.
  void name(KnownTurn& turn, const TurnAsk& ask, const std::vector<int32_t>& prompt) const;
};

}  // namespace temper
