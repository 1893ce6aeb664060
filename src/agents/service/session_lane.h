#pragma once
// A lane of a server in training: each request belongs to a session, whose tokens are trained. One thread
// works in a lane, and a session stays in its lane.

#include <atomic>
#include <map>

#include "src/agents/service/doors.h"
#include "src/agents/service/engine_desk.h"
#include "src/agents/service/open_session.h"
#include "src/agents/service/routes.h"

namespace temper {

struct SessionRules {
  DoorRules doors = {};
  std::map<std::string, std::string> aliases = {};  // names of models that stand for others
  int64_t context_tokens = 0;
  GenerateOptions defaults = {};  // the run's sampling, which holds whatever a client asks for
};

class SessionLane {
 public:
  struct Parts {
    const SessionRules& rules;
    const Doors& doors;
    const TurnCut& cut;
    EngineDesk& desk;
    SessionResults& results;
    size_t lane = 0;
  };
  explicit SessionLane(const Parts& parts) : p_(parts) {}

  /// `paused`: what a session of a record has beyond it; `after_stop`: in the step that was cut.
  void open(uint64_t number, const SessionSetup& setup, Session session, const PausedSession& paused,
            bool after_stop);
  /// A request in the name of the session.
  void receive(uint64_t number, const std::shared_ptr<HttpExchange>& exchange);
  /// Its reward, from whoever has the key for it.
  void receive_reward(uint64_t number, const std::shared_ptr<HttpExchange>& exchange);
  /// New messages of a program that speaks over its pipe, behind all that it said and heard so far.
  void ask(uint64_t number, const Json& messages, const OnPipeAnswer& answer);
  void hear(DeskNews news);
  /// Its program is through, or will never be: the result goes out once what is under way has ended.
  void end(uint64_t number, SessionEnd end);
  /// A step of the run begins, in which each path of turns gets so many tokens (0: any number). A session
  /// rests as soon as one of its turns has to wait for the next step and the engine has none of it: what it
  /// asks from then on waits, too.
  void begin_step(int64_t tokens);
  /// It rests from here on, if it does not yet.
  void rest(uint64_t number);
  /// Nobody hears of it any longer; its record goes out. The engine has nothing of it.
  void suspend(uint64_t number);
  void tick();

 private:
  struct Asked {
    uint64_t session = 0;
    size_t turn = 0;
  };
  void answer(uint64_t number, OpenSession& open, const std::shared_ptr<HttpExchange>& exchange, Route route);
  std::optional<bool> is_trained(const std::string& model) const;
  void answer_turn(uint64_t number, OpenSession& open, const std::shared_ptr<HttpExchange>& exchange,
                   DoorRequest request);
  DoorRequest read(const Json& body, Route route) const;
  TurnFormat format_of(const DoorRequest& request) const;
  std::shared_ptr<OpenAnswer> client_of(const OpenSession& open,
                                        const std::shared_ptr<HttpExchange>& exchange, DoorRequest request,
                                        const std::vector<TurnStart>& starts) const;
  void start(uint64_t number, OpenSession& open, const TurnStart& start);
  void ask_engine(uint64_t number, OpenSession& open, const TurnStart& start, int64_t tokens);
  void begin_rest(uint64_t number, OpenSession& open);
  Json models() const;
  /// The session of a request of the desk, and which of its turns that is; none where it has ended.
  std::pair<OpenSession*, size_t> turn_of(DeskNumber number);

  const Parts p_;
  std::map<uint64_t, OpenSession> open_;  // by number of the session
  std::map<DeskNumber, Asked> asked_;
  int64_t step_tokens_ = 0;
};

}  // namespace temper
