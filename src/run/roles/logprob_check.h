#pragma once
// What the trainer says about the log-probs that came with the responses of a step.

#include "src/run/roles/role.h"
#include "src/train/trainer.h"

namespace temper {

/// Replayed responses without versions: no token of them counts as sampled by older weights, and
/// algorithm.tis_cap has nothing to work on. The first trainer rank warns.
void warn_of_unknown_versions(const RunTask& task, const Comm& dp, std::span<const Trajectory* const> all,
                              int64_t step);

/// All trainer ranks call it after a step whose groups this run generated. `first`: its first update, which
/// starts with the weights after step - 1. Where those sampled a token and give it another log-prob now,
/// each rank `rank` that saw it warns, with the first such token, and the first trainer rank for all. Every
/// rank gets the warning of the first rank that has one, or none.
std::string warn_of_differences(const UpdateStats& first, int64_t step, int rank, Comm& dp);

}  // namespace temper
