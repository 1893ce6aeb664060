#pragma once
// What `temper check` says first: on one screen whether the run would start and fit, what it would do, what
// was read of model and data, one prompt as the model sees it, and what is odd.

#include <optional>
#include <string>
#include <vector>

#include "src/run/plan/report/step_time.h"

namespace temper {

/// What `check` knows beside the plan.
struct CheckFacts {
  Config config = {};
  std::optional<ModelConfig> model = {};  // absent: of a folder that could not be read
  std::string published = {};             // the config.json that stands for a model folder which is not here
  MemoryLimits limits = {};
  int ranks_per_node = 0;              // 0: all on one
  std::vector<PlanError> absent = {};  // inputs that a plan for another machine does without
  Json data = nullptr;                 // DataCheck::data of run/verbs/data_check.h; null: not looked at
  Json trial = nullptr;                // of reward programs (run/verbs/reward_trial.h); null: there are none
  std::optional<StepTime> time = {};
};

/// The first line is the verdict. Of errors it says how many there are, no more.
std::string screen_text(const PlanResult& result, const CheckFacts& facts, bool hints);

/// Passes that a run makes over the lines of DataCheck::data that are not left out.
double epochs_of(const RunPlan& plan, const Json& data);

}  // namespace temper
