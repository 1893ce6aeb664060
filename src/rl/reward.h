#pragma once
// The seam of reward functions: one number for one response. A Reward holds only its options, is called from
// several threads at once, and does bounded work whatever the response holds. Task rewards make raw_reward;
// shaping (length penalties) is added to `reward` only, so filters on the raw reward never see it.

#include <cstdint>
#include <string>
#include <string_view>

#include "src/core/json.h"
#include "src/rl/types.h"

namespace temper {

struct RewardInput {
  std::string_view prompt = {};
  std::string_view response = {};  // without special tokens
  std::string_view answer = {};    // the whole reference answer
  int64_t response_tokens = 0;
  FinishReason finish_reason = FinishReason::stop;
  const Json& record;  // the prompt's line of the data file, for keys of its own
};

class Reward {
 public:
  virtual ~Reward() = default;
  virtual double score(const RewardInput& input) const = 0;
  /// true: a shaping term, kept out of raw_reward.
  virtual bool is_shaping() const { return false; }
  /// Error(Exit::data) at `where` when no response could ever match this answer; run before training starts.
  virtual void check_answer(std::string_view /*answer*/, const std::string& /*where*/) const {}
};

}  // namespace temper
