#pragma once
// The seam of reward functions: one number for one response. A Reward is called from several threads at once
// and does bounded work whatever the response holds; one that asks a program waits for a bounded time. Task
// rewards make raw_reward; shaping (length penalties) is added to `reward` only, so filters on the raw reward
// never see it.

#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/json.h"
#include "src/rl/types.h"

namespace temper {

struct RewardInput {
  std::string_view prompt = {};
  std::string_view response = {};  // without special tokens
  std::string_view answer = {};    // the whole reference answer
  int64_t response_tokens = 0;     // those that the policy sampled and that are trained
  FinishReason finish_reason = FinishReason::stop;
  const Json& record;  // the prompt's line of the data file, for keys of its own
};

/// What a function says of a response: a number and what it is made of, or nothing.
struct Verdict {
  Verdict() = default;
  Verdict(double reward) : value(reward) {}  // NOLINT: most functions say just a number
  bool operator==(double reward) const { return value == reward; }

  std::optional<double> value;
  std::vector<std::pair<std::string, double>> parts;  // for people: they enter no sum
};

/// Thrown by `score` after `abandon`: the response has no verdict yet.
struct Abandoned : std::exception {};

class Reward {
 public:
  virtual ~Reward() = default;
  virtual Verdict score(const RewardInput& input) const = 0;
  /// true: a shaping term, kept out of raw_reward.
  virtual bool is_shaping() const { return false; }
  /// Error(Exit::data) at `where` when no response could ever match this answer; run before training starts.
  virtual void check_answer(std::string_view /*answer*/, const std::string& /*where*/) const {}
  /// Why no response that says something could be right by an answer which `check_answer` takes (a word where
  /// this function looks for a number); empty: one could, or that is not known.
  virtual std::string unmatched(std::string_view /*answer*/) const { return ""; }
  /// The answer that a response gives, as majorities are counted: equal answers have equal texts; nothing
  /// where it gives none.
  virtual std::optional<std::string> answer_in(std::string_view /*response*/) const { return std::nullopt; }
  /// Whether `answer_in` looks for one.
  virtual bool reads_answers() const { return false; }
  /// Calls of `score` that wait for something else than this process; so many are worth a thread.
  virtual int64_t concurrency() const { return 0; }
  /// Nobody waits any longer: calls that wait for something else, and all later ones, throw Abandoned.
  virtual void abandon() const {}
  /// Metrics of the step that ends with this call; sums over ranks make sense.
  virtual std::map<std::string, double> end_step() const { return {}; }
};

}  // namespace temper
