#pragma once
// What makes the samples of prompts, before anyone scores them. Ranks of a team make every call alike.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/core/ctx.h"
#include "src/rollout/request.h"
#include "src/run/groups/prompt_work.h"

namespace temper {

/// The samples of a prompt, with its line.
struct MadeGroup {
  Group group;
  std::shared_ptr<const Json> record;
};

class SampleMaker {
 public:
  virtual ~SampleMaker() = default;

  /// Before the first step. `after_stop`: see Request. False: nothing of it is left to make.
  virtual bool add(PromptWork& work, int64_t num_samples, bool after_stop) = 0;
  virtual bool done() const = 0;
  /// A step of the engine; `cut`: what is not finished ends here, as it is. Returns the groups that ended.
  virtual std::vector<MadeGroup> step(Ctx& c, bool cut) = 0;
  virtual const RolloutCounters& counters() const = 0;
  /// When all is done, on the rank that leads: sums for the metrics of the step.
  virtual std::map<std::string, double> take_sums() { return {}; }
};

}  // namespace temper
