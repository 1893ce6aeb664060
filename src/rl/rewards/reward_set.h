#pragma once
// The reward functions of a run with their weights. For one response, sums left to right in config order:
//   raw    = sum of weight * part over task rewards
//   shaped = raw, plus weight * part of every shaping term
// Functions with domains count where the domain of the response is one of them. Parts are the unweighted
// scores by the function's name, or what `as` calls it, each with the parts that the function itself gave as
// "function/part" behind it. A function that says nothing leaves the response without a reward (excluded):
// both sums are 0, and it has no part. A non-finite score or sum is Error(Exit::numerics).

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/config/reward_config.h"
#include "src/core/helpers/helpers.h"
#include "src/rl/reward.h"
#include "src/rl/rewards/recorded.h"

namespace temper {

struct RewardScore {
  double raw = 0;
  double shaped = 0;
  bool excluded = false;
  std::vector<std::pair<std::string, double>> parts;
};

class RewardSet {
 public:
  /// Without functions every response earns 0: a teacher says what is right.
  RewardSet() = default;
  /// Error(Exit::usage) on no function, an unknown or repeated name, an unknown option, a non-finite weight.
  /// Without `helpers` no function can be asked that needs a program.
  explicit RewardSet(const RewardConfig& config, Helpers* helpers = nullptr);

  /// The verdicts in a rollout file are given again, where a program would be asked about the same response.
  void remember(const std::string& rollout_file) { recorded_.add_file(rollout_file); }

  /// Scores a trajectory (its texts and tokens) and fills raw_reward, reward, reward_parts and excluded.
  void score(Trajectory& trajectory, const Json& record) const;
  /// Checks an answer with every function that applies to its domain, before training; `where` is the file
  /// and line of the prompt. Error(Exit::data) where none does.
  void check_answer(std::string_view answer, const std::string& where, std::string_view domain = "") const;
  /// Why a function can give no response what it gives a right one, see Reward; empty: all of them can.
  std::string unmatched(std::string_view answer, std::string_view domain = "") const;
  /// The answer that a response gives, as the first function says that applies to its domain and finds one.
  std::optional<std::string> answer_in(const Trajectory& trajectory) const;
  /// Some function looks for answers.
  bool reads_answers() const;
  /// The sum over all functions; see Reward.
  int64_t concurrency() const;
  void abandon() const;
  std::map<std::string, double> end_step() const;

 private:
  struct Entry {
    std::string name;
    double weight;
    std::vector<std::string> domains;  // none: all
    std::unique_ptr<Reward> reward;

    bool applies_to(std::string_view domain) const;
  };
  /// `t`: the response to look up among recorded ones.
  RewardScore score(const RewardInput& input, const Trajectory& t) const;

  std::vector<Entry> entries_;
  RecordedVerdicts recorded_;
};

}  // namespace temper
