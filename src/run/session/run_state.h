#pragma once
// What a checkpoint holds of a run, and how it comes back: master weights and moments by tensor name, counts
// and cursors, the groups of steps that were generated ahead of the trainer, and those left unfinished.
// Nothing is stored by rank, so another number of ranks, or another placement, can take it up.

#include <map>
#include <vector>

#include "src/io/checkpoint.h"
#include "src/run/roles/role.h"

namespace temper {

struct RunState {
  Trainer* trainer = nullptr;
  int64_t data_position = 0;                       // of the prompts after all generated steps
  std::vector<const StepInput*> ahead;             // steps generated and not yet trained, in order
  const std::vector<Group>* unfinished = nullptr;  // by the last generated step
};

/// Where a run goes on: trained up to `step`, generated up to `produced`.
struct ResumePoint {
  int64_t step = 0, produced = 0, data_position = 0;
};
ResumePoint read_resume_point(const std::string& checkpoint);

void save_run(const std::string& folder, int64_t step, const RunState& state, const Services& services);

/// The newest checkpoint of `folder` that verifies (rank 0 looks, all ranks get its path); the log says which
/// were passed over, and why. Empty: there are none; Exit::data when there are, but no sound one.
std::string find_checkpoint(const std::string& folder, Comm& comm);
/// The checkpoint that `path` names (see resolve_checkpoint), after rank 0 found it sound.
std::string sound_checkpoint(const std::string& path, Comm& comm);

/// Of all prompts, by data position; empty where the checkpoint has none.
std::vector<Group> read_unfinished(const std::string& checkpoint);

/// Fills the trainer's state; returns the steps that were generated and not trained.
std::map<int64_t, StepInput> restore_run(const std::string& checkpoint, Trainer& trainer,
                                         const Services& services);

/// `path` is a step folder, or a run folder: then its newest checkpoint.
std::string resolve_checkpoint(const std::string& path);

}  // namespace temper
