#pragma once
// The `[reward]` section: the reward functions in order, each with its weight and its own options.
// Options are kept by their written names; the function they belong to (src/rl/rewards/) validates them.

#include <map>
#include <string>
#include <vector>

namespace temper {

struct RewardFunctionConfig {
  std::string name;
  double weight = 1;
  std::map<std::string, double> numbers = {};
  std::map<std::string, std::string> strings = {};
  std::map<std::string, std::vector<std::string>> lists = {};
  std::string as = {};                    // its name in reward_parts; empty: `name`
  std::vector<std::string> domains = {};  // lines that it applies to (data.domain_key); empty: all

  const std::string& part() const { return as.empty() ? name : as; }
};

struct RewardConfig {
  std::vector<RewardFunctionConfig> functions;
};

}  // namespace temper
