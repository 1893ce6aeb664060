#pragma once
// The one place where groups are made: prompts go through an engine, and the samples of each through the
// reward functions while others are still generated.
//   maker.add(work, samples); while (!maker.done()) use(maker.next());
// Ranks of a team make every call alike; the first of them alone scores, and is given the groups.

#include "src/core/stopwatch.h"
#include "src/rollout/engine.h"
#include "src/run/groups/reward_workers.h"
#include "src/run/groups/sample_maker.h"
#include "src/run/groups/session_host.h"
#include "src/run/host/team.h"

namespace temper {

class GroupMaker {
 public:
  /// What a rank makes groups with.
  struct Parts {
    Ctx& ctx;
    Engine& engine;
    const Tokenizer& tokenizer;
    const RewardSet& rewards;
    Team team;
    SessionHost* sessions = nullptr;  // of the first rank, where programs play the samples
    bool plays = false;               // on all ranks: programs do
  };
  /// `stops` is asked between engine steps, and while rewards are waited for: true ends the work. What the
  /// parts refer to outlives the maker.
  GroupMaker(const Parts& parts, const GenerateOptions& options, std::function<bool()> stops);

  /// Before the first `next`. `after_stop`: see Request.
  void add(PromptWork work, int64_t num_samples, bool after_stop = false);
  bool done() const { return done_; }

  /// Groups in any order: those with rewards, and those that go on another time, as the token budget of the
  /// options or a stop cut them, or lack rewards at a stop.
  struct Made {
    std::vector<Group> scored, left;
  };
  /// Takes one step of the engine; after the last one waits for the rewards. Throws what a reward function
  /// threw.
  Made next();
  /// A stop has left something to do.
  bool was_cut() const { return cut_; }

  const RolloutCounters& counters() const { return samples_->counters(); }
  /// When all is done: what it took, and for how much of it rewards alone were waited for.
  double generating_seconds() const { return generated_; }
  double rewarding_seconds() const { return rewarded_; }
  /// When all is done, on the rank that scores.
  std::vector<RewardWorkers::Scored> scoring_times() {
    return workers_ ? workers_->take_times() : std::vector<RewardWorkers::Scored>{};
  }

 private:
  void sort_in(Group group, std::shared_ptr<const Json> record);
  void wait_for_rewards();

  Parts p_;
  GenerateOptions options_;
  std::function<bool()> stops_;
  std::optional<RewardWorkers> workers_;  // of the first rank
  Stopwatch watch_;
  std::unique_ptr<SampleMaker> samples_;
  Made made_;
  bool cut_ = false, done_ = false;
  double generated_ = 0, rewarded_ = 0;
};

}  // namespace temper
