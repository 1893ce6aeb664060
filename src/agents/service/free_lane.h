#pragma once
// A lane of `serve`: every request stands for itself, with the sampling that it asks for. One thread works in
// a lane.

#include <atomic>
#include <map>

#include "src/agents/service/doors.h"
#include "src/agents/service/engine_desk.h"
#include "src/agents/service/open_answer.h"
#include "src/agents/turns/turn_cut.h"

namespace temper {

struct ServeRules {
  DoorRules doors = {};
  std::string model = "policy";   // what /v1/models calls it; requests may call it anything
  int64_t context_tokens = 0;     // of prompt and answer
  int64_t team = 0, teams = 1;    // this one, and those that serve beside it: each has numbers of its own
  GenerateOptions defaults = {};  // max_new_tokens 0: up to the end of the context
};

class FreeLane {
 public:
  struct Parts {
    const ServeRules& rules;
    const Doors& doors;
    const Tokenizer& tokenizer;
    const TurnCut* cut;  // null: the model's folder has no chat template
    EngineDesk& desk;
    size_t lane = 0;
  };
  explicit FreeLane(const Parts& parts) : p_(parts) {}

  void receive(std::shared_ptr<HttpExchange> exchange);
  void hear(DeskNews news);
  void tick();
  /// Clients whose answers are not whole get this instead.
  void end_answers(const DoorError& error);
  /// Answers that are not on their way to their clients as a whole; from any thread.
  int64_t open() const { return num_open_; }

 private:
  /// A request of the engine that is a part of an answer.
  struct Asked {
    std::shared_ptr<OpenAnswer> answer;
    int32_t first = 0;  // choice of its sample 0
  };
  void answer(const std::shared_ptr<HttpExchange>& exchange, const Routed& routed);
  void ask(const std::shared_ptr<HttpExchange>& exchange, const Door& door, DoorRequest request);
  std::vector<int32_t> rendered(const DoorRequest& request) const;
  GenerateOptions options_of(const DoorRequest& request, int64_t prompt_tokens) const;
  void forget_finished();

  const Parts p_;
  std::map<DeskNumber, Asked> asked_;
  std::vector<std::shared_ptr<OpenAnswer>> said_;  // whole, and not yet with their clients
  std::atomic<int64_t> num_open_ = 0;
  int64_t turns_ = 0;
};

}  // namespace temper
