#pragma once
// What a step of training leaves behind beside the weights: metrics, or the dump of a step that was not
// finite.

#include "src/run/roles/role.h"
#include "src/train/trainer.h"

namespace temper {

/// What the notes of the rollout ranks say together.
void record_rollout(const RoleParts& parts, const StepNote& note);

/// The step's groups as its rollout file has them.
void record_rollouts(const RoleParts& parts, std::span<const Group> groups, int64_t step);

/// Means over the updates of the step; what can only be asked once comes from the first. `samples`: the step
/// was generated.
void record_updates(Journal& journal, const std::vector<UpdateStats>& updates, bool samples);

/// All trainer ranks, where an update has a `defect`: writes the step's groups, and ends the run with
/// Exit::numerics.
[[noreturn]] void stop_at_defect(const RoleParts& parts, int64_t step, const std::string& defect,
                                 std::span<const Group> groups);

/// All trainer ranks, with algorithm.mismatch = "stop": the same, where `first` says which log-prob differs.
[[noreturn]] void stop_at_mismatch(const RoleParts& parts, int64_t step, const std::string& first,
                                   std::span<const Group> groups);

}  // namespace temper
