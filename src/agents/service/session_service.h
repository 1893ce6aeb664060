#pragma once
// The server of a run's sessions: who holds a session's key speaks in its name, with the policy as it is now.
// It lives as long as the run; the desk is served by the generation of each step.

#include "src/agents/server/http_server.h"
#include "src/agents/service/lane_threads.h"
#include "src/agents/service/session_lane.h"

namespace temper {

/// What a program is told of its session.
struct SessionAccess {
  uint64_t number = 0;
  std::string base_url, anthropic_base_url;  // of OpenAI's clients (ends with /v1), and of Anthropic's
  std::string key, reward_key;               // of the model, and of whoever may say the reward
};

class SessionService {
 public:
  struct Options {
    HttpOptions http = {};
    SessionRules rules = {};
    Json chat_arguments = Json::object();
  };
  /// As many threads as the desk has lanes. All outlive it.
  SessionService(const Options& options, const Tokenizer& tokenizer, const ChatTemplate& chat,
                 EngineDesk& desk);
  SessionService(const SessionService&) = delete;
  SessionService& operator=(const SessionService&) = delete;

  /// Kinds of new messages whose turns fork, as the template has no cut for them.
  std::vector<std::string> kinds_without_cut() const { return cut_.kinds_without_cut(); }
  /// `record`: what a session with this setup had when it rested, empty: a new one; `after_stop`: the step in
  /// which it rested goes on. Error(Exit::data): it is no record.
  SessionAccess open(const SessionSetup& setup, const std::string& record = {}, bool after_stop = false);
  /// A turn of a program that speaks over its pipe: `answer` gets it on a thread of the server.
  void ask(uint64_t number, Json messages, std::function<void(const PipeAnswer&)> answer);
  /// Nothing where it has ended; its result comes to `take_ended`.
  void end(uint64_t number, SessionEnd end);
  std::vector<SessionResult> take_ended() { return results_.take(); }
  /// See SessionLane; a record comes to `take_rests`.
  void begin_step(int64_t tokens);
  void rest(uint64_t number);
  /// Its keys open nothing any longer.
  void suspend(uint64_t number);
  std::vector<SessionRest> take_rests() { return results_.take_rests(); }
  std::map<std::string, double> take_counts() { return results_.take_counts(); }

 private:
  struct Key {
    uint64_t number = 0;
    bool rewards = false;
  };
  bool forget_keys(uint64_t number);
  std::optional<Key> find_key(const std::string& key) const;
  std::optional<HttpRefusal> allow(const HttpHead& head, bool& known) const;
  void receive(std::shared_ptr<HttpExchange> exchange);
  size_t lane_of(uint64_t number) const { return number % lanes_->size(); }

  const Options o_;
  const Doors doors_;
  const TurnCut cut_;
  SessionResults results_;
  std::optional<LaneThreads<SessionLane>> lanes_;
  mutable std::mutex mutex_;
  std::map<std::string, Key> keys_;                         // by digest of the key
  std::map<uint64_t, std::array<std::string, 2>> keys_of_;  // digests, by session
  uint64_t next_ = 0;
  std::optional<HttpServer> server_;  // last: its thread uses all others
};

}  // namespace temper
