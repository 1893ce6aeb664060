#pragma once
// `command`: a program of one's own says the reward. It gets a line of JSON for each response,
//   {"prompt": text, "response": text, "answer": text, "record": the line of the data file, "id": integer}
// (an answer that is a list or an object: its JSON text) on stdin and answers with a line of JSON on stdout,
// in any order:
//   {"id": the same, "reward": finite number, "parts": {name: number, ...} (may be left out)}
// Nothing else may be written to stdout; stderr is free. The program ends when its stdin does.
// Options: argv (needed, list of strings: the program and its arguments, from the working folder of the run),
// workers = 1 (programs per rank), in_flight = 1 (lines that a program is given before it has to answer),
// limit_seconds = 10 (for one answer, the start of the program included), on_error = "exclude" | "zero" |
// "stop": what a response earns whose program is late, has ended or talks nonsense: nothing (it takes no part
// in the statistics of its group and trains nothing), 0, or the end of the run (Exit::data).
// reward_parts has the reward as "command" and the program's parts as "command/NAME". The metrics of a step have
// the names that most responses have, at most kMaxPartNames (rl/rollout_metrics.h); more are warned about once.
// The program runs with the rights of the run, without a sandbox.

#include <mutex>
#include <set>

#include "src/rl/reward.h"
#include "src/rl/rewards/command/pool.h"
#include "src/rl/rewards/options.h"

namespace temper {

class CommandReward final : public Reward {
 public:
  explicit CommandReward(RewardOptions& options);
  /// Error(Exit::environment) where the options were read without helpers.
  Verdict score(const RewardInput& input) const override;
  int64_t concurrency() const override { return options_.workers * options_.in_flight; }
  void abandon() const override;
  std::map<std::string, double> end_step() const override;

 private:
  enum class OnError { exclude, zero, stop };

  void note_parts(const Verdict& verdict) const;

  CommandOptions options_;
  OnError on_error_;
  std::unique_ptr<CommandPool> pool_;  // null without helpers
  mutable std::mutex mutex_;
  mutable std::set<std::string> part_names_;  // at most one more than the metrics of a step have
};

}  // namespace temper
