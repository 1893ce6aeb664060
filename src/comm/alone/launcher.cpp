#include "src/comm/alone/launcher.h"

#include <cstdlib>
#include <string>

#include "src/core/check.h"

namespace temper {
namespace {

/// The number of processes that a variable names; 0 without it.
int number_in(const char* name) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

}  // namespace

bool started_by_launcher() {
  if (std::getenv("PMIX_RANK") || std::getenv("OMPI_COMM_WORLD_RANK")) return true;
  if (const char* const tasks = std::getenv("SLURM_STEP_NUM_TASKS");
      tasks && std::getenv("SLURM_STEP_ID") && std::string(tasks) != "1")
    fail(Exit::environment, {.what = "started by srun without PMIx",
                             .where = "launch",
                             .why = "Open MPI finds the other ranks through PMIx only",
                             .fix = "use `srun --mpi=pmix ...`"});
  if (const int ranks = number_in("PMI_SIZE"); ranks > 1)
    fail(Exit::environment,
         {.what = "started by the launcher of another MPI",
          .where = "launch",
          .why = fmt::format("PMI_SIZE = {}: Open MPI cannot find these ranks, each would run alone", ranks),
          .fix = "use the mpirun of Open MPI, or `srun --mpi=pmix ...`"});
  return false;
}

std::string variable_of_launcher() {
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (std::getenv(name)) return name;
  const bool of_step = std::getenv("SLURM_PROCID") && std::getenv("SLURM_STEP_ID");
  const bool shell = std::getenv("SLURM_PTY_PORT") && number_in("SLURM_STEP_NUM_TASKS") == 1;
  return of_step && !shell ? "SLURM_PROCID" : "";
}

}  // namespace temper
