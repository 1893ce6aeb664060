#pragma once
// An answer on its way to a client: as a whole when all its choices are there, or as a stream.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "src/agents/doors/door.h"
#include "src/agents/server/http_exchange.h"

namespace temper {

/// What a turn grew by, as its clients hear it.
struct TurnGrowth {
  std::vector<int32_t> tokens = {};
  std::vector<double> logprobs = {};
  std::string text = {};
  int64_t found = 0;  // tokens of its prompt that lay in pages
};

class OpenAnswer {
 public:
  using Clock = std::chrono::steady_clock;
  /// The id of call `number` of a choice; without one: a function of the answer's id.
  using CallId = std::function<std::string(int32_t index, size_t number)>;

  /// `head`: id, time and prompt; choices come with `finish`. `format`: how the model says thoughts and
  /// calls. The door outlives it.
  OpenAnswer(std::shared_ptr<HttpExchange> exchange, const Door& door, DoorRequest request, DoorAnswer head,
             const TurnFormat& format, CallId call_id = {});

  void grow(int32_t index, const TurnGrowth& growth);
  /// Choice `index` is over; the last one sends what has to be sent.
  void finish(int32_t index, Response response);
  /// What the prompt of the choices from `first` on is scored.
  void score(int32_t first, const std::vector<int32_t>& prompt, std::vector<PromptLogprob> scores);
  const std::vector<int32_t>& prompt_of(int32_t index) const {
    return answer_.choices[static_cast<size_t>(index)].prompt;
  }
  bool finished() const { return left_ == 0; }
  /// The client gets this instead.
  void fail(const DoorError& error);
  /// Now and then: a stream that has nothing to say says so.
  void tick(Clock::time_point now);

  bool gone() const { return exchange_->gone(); }
  bool delivered() const { return exchange_->delivered(); }
  bool lost() const { return exchange_->lost(); }
  const DoorRequest& request() const { return request_; }
  const DoorAnswer& answer() const { return answer_; }

 private:
  struct Choice {
    TurnStream said;
    size_t calls = 0, fed = 0;  // calls that were said, bytes that were given to `said`
    bool grew = false, over = false;
  };
  void begin();
  void send(const DoorDelta& delta);
  DoorDelta delta_of(int32_t index, TurnText said);

  std::shared_ptr<HttpExchange> exchange_;
  const Door& door_;
  const DoorRequest request_;
  DoorAnswer answer_;
  const TurnFormat format_;
  const CallId call_id_;
  std::vector<Choice> choices_;
  std::unique_ptr<DoorStream> stream_;  // null: nothing has been sent of it
  int32_t left_;
  Clock::time_point last_ = Clock::now();  // something was said, or the answer asked for
};

/// An error as the door says it, with the headers that clients obey.
void reply_error(HttpExchange& exchange, const Door& door, const DoorError& error);

}  // namespace temper
