#pragma once
// A lane of a server in training: each request belongs to a session, whose tokens are trained. One thread
// works in a lane, and a session stays in its lane.

#include <atomic>
#include <map>
#include <mutex>

#include "src/agents/service/doors.h"
#include "src/agents/service/engine_desk.h"
#include "src/agents/service/open_session.h"
#include "src/agents/service/routes.h"

namespace temper {

/// What a session left when it ended.
struct SessionResult {
  uint64_t number = 0;
  SessionEnd end = {};
  std::vector<SessionSample> samples = {};
  int32_t turns = 0;
  Json requests = {};
  bool diverged = false;
};

struct SessionRules {
  DoorRules doors = {};
  std::map<std::string, std::string> aliases = {};  // names of models that stand for others
  int64_t context_tokens = 0;
  GenerateOptions defaults = {};  // the run's sampling, which holds whatever a client asks for
};

/// Results on their way from the lanes to whoever asked for sessions; counts of what clients asked in vain.
class SessionResults {
 public:
  void put(SessionResult result);
  std::vector<SessionResult> take();
  void count(const std::string& name);
  std::map<std::string, double> take_counts();

 private:
  std::mutex mutex_;
  std::vector<SessionResult> ended_;
  std::map<std::string, double> counts_;
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

  void open(uint64_t number, const SessionSetup& setup);
  /// A request in the name of the session.
  void receive(uint64_t number, const std::shared_ptr<HttpExchange>& exchange);
  /// Its reward, from whoever has the key for it.
  void receive_reward(uint64_t number, const std::shared_ptr<HttpExchange>& exchange);
  /// New messages of a program that speaks over its pipe, behind all that it said and heard so far.
  void ask(uint64_t number, const Json& messages, const OnPipeAnswer& answer);
  void hear(DeskNews news);
  /// Its program is through, or will never be: the result goes out once what is under way has ended.
  void end(uint64_t number, SessionEnd end);
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
  Json models() const;
  /// The session of a request of the desk, and which of its turns that is; none where it has ended.
  std::pair<OpenSession*, size_t> turn_of(DeskNumber number);

  const Parts p_;
  std::map<uint64_t, OpenSession> open_;  // by number of the session
  std::map<DeskNumber, Asked> asked_;
};

}  // namespace temper
