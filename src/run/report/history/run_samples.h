#pragma once
// Some of what the policy said: of steps spread over the run, of prompts spread over each of them.

#include <string>
#include <vector>

#include "src/run/report/history/run_history.h"

namespace temper {

/// Samples from the rollout files of a run folder (there may be none): at most six steps, the first and the
/// newest among them; of each three prompts, with the best and the worst response. Of a long file only the
/// beginning is read. `notes` gets what is not read.
std::vector<StepSamples> read_samples(const std::string& run, std::vector<std::string>& notes);

}  // namespace temper
