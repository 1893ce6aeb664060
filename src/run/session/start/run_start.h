#pragma once
// What a start finds in the run folder, where the run goes on from, and what of the folder stays. The first
// trainer rank decides before anything is written, and acts when every rank has taken up the checkpoint.

#include <string>

#include "src/config/changes.h"
#include "src/run/record/origins/input_digests.h"
#include "src/run/record/run_checkpoint.h"
#include "src/run/record/run_folder.h"
#include "src/run/roles/role.h"

namespace temper {

struct RunStart {
  enum class Finds {
    nothing,   // or a run without a checkpoint, which is set aside
    own,       // a checkpoint of this run
    foreign,   // checkpoint.resume names another run's; what is in the folder is set aside
    replaced,  // a run that run.overwrite permits to remove
  };
  Finds finds = Finds::nothing;
  std::string checkpoint;  // empty: from the first weights
};

/// Digests that a checkpoint keeps under a meta key; of one that was made before there were any, none.
InputDigests digests_in(const CheckpointReader& checkpoint, const char* meta_key);

/// What changed since the checkpoint was made: keys of the config, the content of inputs, the files of a
/// replay up to its step. Another path to the same content says so and is not grave; whether weights are the
/// same is known when they are loaded.
std::vector<ConfigChange> changes_since(const CheckpointReader& checkpoint, const RunTask& task,
                                        const InputDigests& inputs);

/// The folder's own newest sound checkpoint comes first, whatever checkpoint.resume names; the log says what
/// changed since. Exit::usage for a run that may not be replaced, and for grave changes without
/// checkpoint.accept_changes; Exit::data when no checkpoint is sound.
RunStart find_run_start(const RunTask& task, const RunFolder& folder, const InputDigests& inputs);

/// What a checkpoint of a replay keeps: the files of the steps up to `step`.
std::string replayed_text(const RunTask& task, int64_t step);
InputDigests inputs_up_to(int64_t step, InputDigests inputs);

/// The folder as the run goes on from the start at `step`; `said`: the last step whose line stays.
void prepare_folder(RunFolder& folder, RunStart::Finds finds, int64_t step, int64_t said, bool generates);

}  // namespace temper
