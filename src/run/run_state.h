#pragma once
// What a checkpoint holds of a run, and how it comes back: master weights and moments by tensor name, counts
// and cursors. Nothing is stored by rank, so another number of ranks can take it up.

#include <optional>

#include "src/io/checkpoint.h"
#include "src/run/role.h"

namespace temper {

struct RunState {
  Trainer* trainer = nullptr;
  PromptStream* prompts = nullptr;  // may be null
};

void save_run(const std::string& folder, int64_t step, const RunState& state, const Services& services);

/// The newest checkpoint of `folder` that verifies (rank 0 looks, all ranks get its path); the log says which
/// were passed over, and why. Empty: there are none; Exit::data when there are, but no sound one.
std::string find_checkpoint(const std::string& folder, Comm& comm);
/// The checkpoint that `path` names (see resolve_checkpoint), after rank 0 found it sound.
std::string sound_checkpoint(const std::string& path, Comm& comm);

/// Fills the state; returns the step.
int64_t restore_run(const std::string& checkpoint, const RunState& state, const Services& services);

/// `path` is a step folder, or a run folder: then its newest checkpoint.
std::string resolve_checkpoint(const std::string& path);

}  // namespace temper
