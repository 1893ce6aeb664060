#pragma once
// Who has started this process: the launcher of a job of several processes, as its variables tell, or nobody.

#include <string>

namespace temper {

/// True under `mpirun` of Open MPI and `srun --mpi=pmix`, whatever the number of ranks. False: a process
/// alone, which needs no MPI. Exit::environment under a launcher whose other ranks cannot be found: srun
/// without PMIx, or that of another MPI.
bool started_by_launcher();

/// The variable by which a launcher of any MPI, or srun, tells that this process is a rank; empty: none does.
/// A batch script is none, nor is a shell that srun gives to a user.
std::string variable_of_launcher();

}  // namespace temper
