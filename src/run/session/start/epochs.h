#pragma once
// How long a run is whose config counts epochs: run.epochs becomes run.steps before anything is planned, so
// that all that follows, the config in the run folder and in its checkpoints too, knows steps alone.
//
//   steps = epochs x (sum over files of weight x lines) / prompts_per_step, rounded up
//
// SFT: lines of a step in place of prompts. Lines that data.overlong = "drop" leaves out do not count.
// Prompts that rollout.dynamic_sampling_rounds replaces are drawn beyond the epochs.

#include <string>

#include "src/comm/comm.h"
#include "src/config/config.h"

namespace temper {

/// A config without run.epochs stays as it is. The first rank of `comm` counts, all ranks get its steps.
/// `replayed`: files of a replay, each of them a step; 0: none. Exit::data for a file of data.train without
/// lines; Exit::usage where the steps would be more than run.steps can be.
void resolve_epochs(LoadedConfig& loaded, int64_t replayed, Comm& comm);

/// The same for a look at a config, in a bounded time: large files are estimated, and all lines count. Says
/// what the steps are not exact for; "" where they are. `has_data`: the files of data.train are here; without
/// them there is one step.
std::string estimate_epochs(LoadedConfig& loaded, bool has_data);

/// For what trains nothing, and needs no data: one step.
void leave_epochs(LoadedConfig& loaded);

}  // namespace temper
