#pragma once
// What was said of responses in steps that a run has done and makes again, after a crash: the responses come
// out the same, and a program that a clock has judged would not. A response is known by its prompt, its
// tokens and its index in the group.

#include <map>
#include <string>

#include "src/rl/reward.h"
#include "src/rl/types.h"

namespace temper {

class RecordedVerdicts {
 public:
  /// All responses of a rollout file.
  void add_file(const std::string& path);
  /// What the function `name` said; null: the response is not known.
  std::optional<Verdict> find(const Trajectory& t, const std::string& name) const;

 private:
  std::map<std::string, std::vector<std::pair<std::string, double>>> parts_;  // by identity of the response
};

}  // namespace temper
