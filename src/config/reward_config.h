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
};

struct RewardConfig {
  std::vector<RewardFunctionConfig> functions;
};

}  // namespace temper
