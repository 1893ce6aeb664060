#pragma once
// A training run on this rank: its roles, step after step.

#include "src/run/roles/role.h"

namespace temper {

class MpiSession;

/// Every rank of the world calls it with the same task and table. Exit::ok, or Exit::retry when the run was
/// stopped before its last step and saved.
int run_session(const RunTask& task, const MpiSession& mpi,
                std::span<const RoleRow> table = built_in_roles());

}  // namespace temper
