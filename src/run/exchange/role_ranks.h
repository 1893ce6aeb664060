#pragma once
// Who hands what to whom: ranks by what they do in a run, and the channels between them.

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

namespace temper {

/// World ranks, ascending. `producers`: who makes groups (the rollout ranks; the trainer's own where nothing
/// is generated). `stages`: roles that add something to each group (the reference its log-probs); none empty.
/// Where several ranks share the model of a role, these are the ones that speak for them; the others stand
/// below. `learners`: all ranks of roles that learn from whole steps beside the trainer. `keepers`: all that
/// have state for a checkpoint, those of trainer and learners among them.
struct RoleRanks {
  std::vector<int> producers;
  std::vector<std::vector<int>> stages;
  std::vector<int> trainer;
  std::vector<int> with_producers = {}, with_stages = {};
  std::vector<int> learners = {}, keepers = {};
  /// Stages of roles that learn: what they say of a step depends on the step that they have learned last.
  std::set<size_t> learning_stages = {};

  bool has_role(int rank) const {
    const auto in = [rank](const std::vector<int>& some) {
      return std::binary_search(some.begin(), some.end(), rank);
    };
    return in(producers) || in(trainer) || in(with_producers) || in(with_stages) ||
           std::any_of(stages.begin(), stages.end(), in);
  }
  /// Nothing is generated where the trainer is: its weights go on while others generate with older ones.
  bool generate_apart() const {
    const auto apart = [this](const std::vector<int>& ranks) {
      return std::none_of(ranks.begin(), ranks.end(), [this](int rank) { return trains(rank); });
    };
    return apart(producers) && apart(with_producers);
  }
  bool trains(int rank) const { return std::binary_search(trainer.begin(), trainer.end(), rank); }
  /// Who gets all groups of every step, with what the stages add.
  std::vector<int> with_whole_steps() const {
    std::vector<int> all;
    std::set_union(trainer.begin(), trainer.end(), learners.begin(), learners.end(), std::back_inserter(all));
    return all;
  }
  /// Keepers that the trainer has to tell how far it is.
  std::vector<int> keepers_apart() const {
    std::vector<int> apart;
    std::set_difference(keepers.begin(), keepers.end(), trainer.begin(), trainer.end(),
                        std::back_inserter(apart));
    return apart;
  }
};

/// A stage has kToStage + its number.
enum Channel : int {
  kWholeSteps = 1,
  kShared = 2,
  kWeights = 3,
  kEnd = 4,
  kToStage = 5,
  kAsk = 100,
  kDecided = 101,
  kMemory = 102,  // of weights, for those that may read it
  kOpened = 103,
  kRead = 104,
  kTrained = 105,
  kLastSave = 106
};

}  // namespace temper
