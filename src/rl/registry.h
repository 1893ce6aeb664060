#pragma once
// Names to objects: the algorithms of algorithm.name and the reward functions of reward.functions.
// An unknown name or option is Error(Exit::usage) with the nearest names and all legal ones.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "src/config/algorithm_config.h"
#include "src/config/reward_config.h"
#include "src/core/helpers/helpers.h"
#include "src/rl/algorithm.h"
#include "src/rl/reward.h"

namespace temper {

struct AlgorithmRow {
  std::string_view name;
  std::unique_ptr<Algorithm> (*make)(const AlgorithmConfig&, const RewardConfig&);
};
std::span<const AlgorithmRow> built_in_algorithms();

/// `rewards`: the functions whose parts an advantage may take apart.
std::unique_ptr<Algorithm> make_algorithm(const AlgorithmConfig& config, const RewardConfig& rewards = {},
                                          std::span<const AlgorithmRow> rows = built_in_algorithms());

/// Without `helpers` a function that needs a program can be looked at, not asked.
std::unique_ptr<Reward> make_reward(const RewardFunctionConfig& config, Helpers* helpers = nullptr);
/// A function of the config asks a program.
bool needs_helpers(const RewardConfig& config);
std::vector<std::string_view> reward_names();
struct RewardDoc {
  std::string_view name;
  std::string_view help;  // what it gives, its options with their defaults
};
std::vector<RewardDoc> reward_docs();

}  // namespace temper
