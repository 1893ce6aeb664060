#include "src/rl/registry.h"

#include <algorithm>
#include <array>

#include "src/rl/choices.h"
#include "src/rl/losses/grpo.h"
#include "src/rl/losses/sft.h"
#include "src/rl/rewards/arithmetic.h"
#include "src/rl/rewards/command/command.h"
#include "src/rl/rewards/exact.h"
#include "src/rl/rewards/gsm8k.h"
#include "src/rl/rewards/length.h"
#include "src/rl/rewards/math.h"
#include "src/rl/rewards/options.h"

namespace temper {
namespace {

template <typename Made>
std::unique_ptr<Reward> reward_from(RewardOptions& options) {
  return std::make_unique<Made>(options);
}

struct RewardRow {
  std::string_view name;
  std::unique_ptr<Reward> (*make)(RewardOptions&);
};

constexpr std::array kRewards{
    RewardRow{"exact", reward_from<ExactReward>},   RewardRow{"arithmetic", reward_from<ArithmeticReward>},
    RewardRow{"gsm8k", reward_from<Gsm8kReward>},   RewardRow{"math", reward_from<MathReward>},
    RewardRow{"length", reward_from<LengthReward>}, RewardRow{"command", reward_from<CommandReward>},
};

template <typename Made>
std::unique_ptr<Algorithm> algorithm_from(const AlgorithmConfig& config) {
  return std::make_unique<Made>(config);
}

constexpr std::array kMakers{
    AlgorithmRow{"grpo", algorithm_from<Grpo>},
    AlgorithmRow{"sft", algorithm_from<Sft>},
};
constexpr bool names_are_those_of_the_config() {
  if (kMakers.size() != kAlgorithmNames.size()) return false;
  for (size_t i = 0; i < kMakers.size(); ++i)
    if (kMakers[i].name != kAlgorithmNames[i]) return false;
  return true;
}
static_assert(names_are_those_of_the_config(), "a row here for each algorithm of config/algorithm_config.h");

}  // namespace

std::span<const AlgorithmRow> built_in_algorithms() { return kMakers; }

std::unique_ptr<Algorithm> make_algorithm(const AlgorithmConfig& config, std::span<const AlgorithmRow> rows) {
  std::vector<std::string_view> names;
  for (const AlgorithmRow& row : rows) names.push_back(row.name);
  return rows[choice_index("algorithm.name", config.name, names)].make(config);
}

std::vector<std::string_view> reward_names() {
  std::vector<std::string_view> names;
  for (const RewardRow& row : kRewards) names.push_back(row.name);
  return names;
}

std::unique_ptr<Reward> make_reward(const RewardFunctionConfig& config, Helpers* helpers) {
  const RewardRow& row = kRewards[choice_index("reward.functions", config.name, reward_names())];
  RewardOptions options(config, helpers);
  std::unique_ptr<Reward> reward = row.make(options);
  options.finish();
  return reward;
}

bool needs_helpers(const RewardConfig& config) {
  return std::any_of(config.functions.begin(), config.functions.end(),
                     [](const RewardFunctionConfig& function) { return function.name == "command"; });
}

}  // namespace temper
