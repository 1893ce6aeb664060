#pragma once
// Who has started this process: the launcher of a job of several processes, as its variables tell, or nobody.

namespace temper {

/// True under `mpirun` of Open MPI and `srun --mpi=pmix`, whatever the number of ranks. False: a process
/// alone, which needs no MPI. Exit::environment under a launcher whose other ranks cannot be found: srun
/// without PMIx, or that of another MPI.
bool started_by_launcher();

}  // namespace temper
