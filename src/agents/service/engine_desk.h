#pragma once
// Where the thread of the engine and those that speak with clients meet: once per step of the engine, under a
// lock that is held for an instant. What waits for an answer belongs to a lane: a thread that gets its news.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "src/rollout/engine.h"

namespace temper {

/// A request at the desk. Numbers of lane i are i, i + lanes, i + 2 lanes, ...
using DeskNumber = uint64_t;

/// What a step made of the requests of one lane.
struct DeskNews {
  struct Grown {
    DeskNumber number = 0;
    int32_t sample = 0, token = 0;
    double logprob = 0;
    std::string text = {};
    int64_t found = 0;  // tokens of the prompt that lay in pages when it came
  };
  struct Done {
    DeskNumber number = 0;
    std::vector<Response> responses;
  };
  struct Scored {
    DeskNumber number = 0;
    std::vector<PromptScore> scores;
  };
  struct Refused {
    DeskNumber number = 0;
    std::string why;
  };
  std::vector<Grown> grown = {};
  std::vector<Done> done = {};
  std::vector<Scored> scored = {};
  std::vector<Refused> refused = {};
  bool empty() const { return grown.empty() && done.empty() && scored.empty() && refused.empty(); }
};

class EngineDesk {
 public:
  /// `on_news(lane, news)`, on the engine's thread: returns at once.
  explicit EngineDesk(size_t lanes) : next_(lanes) {
    for (size_t lane = 0; lane < lanes; ++lane) next_[lane] = lane;
  }
  /// Before the first request.
  void listen(std::function<void(size_t lane, DeskNews news)> on_news) { on_news_ = std::move(on_news); }

  // Any thread:
  DeskNumber ask(size_t lane, Request request);
  /// Nobody waits for it any longer; no news come of it but what is under way.
  void cancel(DeskNumber number);

  /// Ends a wait of the engine's thread.
  void wake();

  // The engine's thread:
  struct Asked {
    std::vector<std::pair<DeskNumber, Request>> fresh;
    std::vector<DeskNumber> cancelled;
    bool empty() const { return fresh.empty() && cancelled.empty(); }
  };
  Asked take();
  /// Until something was asked, somebody woke it, or the time is over.
  void wait(std::chrono::milliseconds most);
  size_t lane_of(DeskNumber number) const { return number % next_.size(); }
  size_t lanes() const { return next_.size(); }
  void publish(size_t lane, DeskNews news) const {
    if (!news.empty()) on_news_(lane, std::move(news));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<DeskNumber> next_;  // by lane
  Asked asked_;
  bool woken_ = false;
  std::function<void(size_t, DeskNews)> on_news_;
};

/// The engine's end of a desk: a generation whose requests come from it, and whose tokens go there.
class DeskGeneration {
 public:
  /// All outlive it.
  DeskGeneration(Engine& engine, const GenerateOptions& options, const Tokenizer* tokenizer,
                 EngineDesk& desk);

  /// Requests and ends of requests, as the desk gave them.
  void take(EngineDesk::Asked asked);
  bool idle() const { return generation_.done(); }
  /// One step, and its news to the desk.
  void step(Ctx& c);
  /// What is not finished ends here, and is told as it is.
  void cut(Ctx& c);
  const RolloutCounters& counters() const { return generation_.counters(); }

 private:
  void tell(std::vector<Generation::Finished> finished);

  EngineDesk& desk_;
  std::vector<DeskNews> news_;            // by lane
  std::map<size_t, DeskNumber> at_work_;  // by number of the generation
  std::map<DeskNumber, size_t> numbers_;  // and the other way
  Generation generation_;
};

}  // namespace temper
