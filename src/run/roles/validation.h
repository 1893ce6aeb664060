#pragma once
// Scores the current weights on held-out prompts by generating through the rollout engine. Each file of
// validation.data is a set: val/<file name>/score/{mean,max,min}, response_length/mean, clip_ratio, and with
// several samples per prompt pass@k (a sample passes when its raw reward is at least 1). Random numbers: data
// positions from kFirstPosition on, so that no draw of training is repeated.

#include "src/run/roles/role.h"

namespace temper {

class Validation {
 public:
  static constexpr int64_t kFirstPosition = int64_t{1} << 43;

  Validation(Services& services, Engine& engine, const ChatTemplate* chat_template);

  /// Adds the metrics to the journal and writes validation/step-XXXXXX.jsonl. All ranks share the prompts.
  std::map<std::string, double> run(int64_t step);

 private:
  struct Set {
    std::string name;
    std::vector<DrawnPrompt> prompts;
  };
  std::vector<Group> generate(const Set& set, int64_t version);
  GenerateOptions options(int64_t version) const;

  Services& s_;
  Engine& engine_;
  RewardSet rewards_;
  std::vector<Set> sets_;
};

}  // namespace temper
