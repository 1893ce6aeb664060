#include "src/rl/registry.h"

#include <algorithm>
#include <array>

#include "src/config/methods.h"
#include "src/rl/choices.h"
#include "src/rl/policy_gradient.h"
#include "src/rl/rewards/arithmetic.h"
#include "src/rl/rewards/command/command.h"
#include "src/rl/rewards/exact.h"
#include "src/rl/rewards/gsm8k.h"
#include "src/rl/rewards/length.h"
#include "src/rl/rewards/math.h"
#include "src/rl/rewards/options.h"
#include "src/rl/sft.h"

namespace temper {
namespace {

template <typename Made>
std::unique_ptr<Reward> reward_from(RewardOptions& options) {
  return std::make_unique<Made>(options);
}

struct RewardRow {
  RewardDoc doc;
  std::unique_ptr<Reward> (*make)(RewardOptions&);
};

constexpr std::array kRewards{
    RewardRow{{"exact", "1 when the response is the answer, white space at both ends aside"},
              reward_from<ExactReward>},
    RewardRow{{"arithmetic", "1 when the integer at the end of the response equals the answer"},
              reward_from<ArithmeticReward>},
    RewardRow{{"gsm8k",
               "1 when the number behind the last `####` is that of the answer; method = \"strict\" or "
               "\"flexible\" (the last number anywhere), format_score = 0 for another number"},
              reward_from<Gsm8kReward>},
    RewardRow{{"math", "1 when the last \\boxed{...} of the response is the answer up to notation"},
              reward_from<MathReward>},
    RewardRow{{"length",
               "0, falling to -factor over the last buffer_tokens of max_tokens (both needed), of the tokens "
               "that are trained; factor = 1"},
              reward_from<LengthReward>},
    RewardRow{{"command",
               "what a program of your own says: argv (needed), workers = 1, in_flight = 1, "
               "limit_seconds = 10, on_error = \"exclude\", \"zero\" or \"stop\"; without a sandbox"},
              reward_from<CommandReward>},
};

std::unique_ptr<Algorithm> policy_gradient(const AlgorithmConfig& config, const RewardConfig& rewards) {
  return std::make_unique<PolicyGradient>(config, rewards);
}
std::unique_ptr<Algorithm> supervised(const AlgorithmConfig& config, const RewardConfig&) {
  return std::make_unique<Sft>(config);
}

constexpr auto kMakers = [] {
  std::array<AlgorithmRow, kAlgorithms.size()> rows;
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] = {kAlgorithms[i].name, kAlgorithms[i].generates ? policy_gradient : supervised};
  return rows;
}();

}  // namespace

std::span<const AlgorithmRow> built_in_algorithms() { return kMakers; }

std::unique_ptr<Algorithm> make_algorithm(const AlgorithmConfig& config, const RewardConfig& rewards,
                                          std::span<const AlgorithmRow> rows) {
  std::vector<std::string_view> names;
  for (const AlgorithmRow& row : rows) names.push_back(row.name);
  return rows[choice_index("algorithm.name", config.name, names)].make(config, rewards);
}

std::vector<std::string_view> reward_names() {
  std::vector<std::string_view> names;
  for (const RewardRow& row : kRewards) names.push_back(row.doc.name);
  return names;
}

std::vector<RewardDoc> reward_docs() {
  std::vector<RewardDoc> docs;
  for (const RewardRow& row : kRewards) docs.push_back(row.doc);
  return docs;
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
