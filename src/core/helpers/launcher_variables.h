#pragma once
// The variables that tell a process which rank of a job it is: those of Open MPI, PMIx, PMI and of a job step
// of Slurm. What a rank starts must not have them: it would take itself for that rank.

#include <string_view>

namespace temper {

bool is_launcher_variable(std::string_view name);
/// From the environment of this process, which has one thread.
void remove_launcher_variables();

}  // namespace temper
