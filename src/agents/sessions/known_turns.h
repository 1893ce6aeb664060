#pragma once
// The turns of a session, found by messages and by ids. Each keeps what it adds to its parent's path alone,
// so that all of them have no more than was sent and sampled.

#include <optional>
#include <string>
#include <vector>

#include "src/agents/sessions/id_paths.h"
#include "src/agents/sessions/message_tree.h"
#include "src/agents/sessions/session.h"

namespace temper {

struct KnownTurn {
  SessionTurn turn = {};
  bool line = false;         // its prompt is the data line's own for the first time
  std::string request = {};  // request_digest
  std::string ask = {};      // ask_digest
  std::string idempotency_key = {};
  int64_t max_new_tokens = 0;  // as the engine was told
  std::vector<std::string> stop = {};
  size_t node = MessageTree::kNone;    // the last message of its request; none: it brought ids
  int64_t clients = 0;                 // who wait for the answer, or are getting it
  bool live = true;                    // false: of a record, and not asked for since
  std::optional<Response> begun = {};  // unfinished: what the engine has of it
  std::string path = {};               // finished: digest of all its ids

  /// Finished, and whoever wanted it has it or may have it.
  bool counts() const { return live && turn.finished && (turn.received || clients > 0); }
  bool lost() const { return clients == 0 && !turn.received; }
};

class KnownTurns {
 public:
  size_t size() const { return turns_.size(); }
  const KnownTurn& operator[](size_t turn) const { return turns_[turn]; }
  KnownTurn& at(size_t turn) { return turns_[turn]; }
  const MessageTree& messages() const { return messages_; }

  /// The turn that a request goes on from.
  struct Known {
    size_t turn = 0;
    size_t depth = 0;  // messages up to its answer; of ids none
  };
  std::optional<Known> find(const TurnAsk& ask) const;

  /// A turn under way. `depth`: as found, 0 without a parent.
  size_t add(KnownTurn turn, const TurnAsk& ask, size_t depth);
  /// The engine is through: it can be found now.
  void finish(size_t turn, Response response, Json answer);
  /// One of a record, as it was.
  void restore(KnownTurn turn);
  MessageTree& restored_messages() { return messages_; }
  /// Turns that were asked for, and the tokens that those have.
  int64_t live() const;
  int64_t sampled_tokens() const;

  /// A turn and those that it goes on from, the first one first.
  std::vector<size_t> path(size_t turn) const;
  std::vector<int32_t> prompt(size_t turn) const;
  /// All ids of a finished turn and those before it.
  std::vector<int32_t> ids(size_t turn) const;
  /// The first one in `before`'s order that counts and has the same ids.
  size_t first_with_its_ids(size_t turn) const;
  /// The order in which siblings stand: whatever came when.
  bool before(size_t a, size_t b) const;

 private:
  std::optional<size_t> first(const std::vector<size_t>& turns, const Json* said) const;
  void register_path(size_t turn);

  std::vector<KnownTurn> turns_;
  MessageTree messages_;
  IdPaths paths_;
};

}  // namespace temper
