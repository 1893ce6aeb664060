#pragma once
// Which device the ranks of a program compute on, and which GPU is whose.

#include <string>

#include "src/comm/mpi_comm.h"
#include "src/config/config.h"
#include "src/core/device.h"
#include "src/run/plan/plan.h"

namespace temper {

/// The same on all ranks of `comm`: "auto" is a GPU where each of them finds one. "cuda" where one finds none
/// is Exit::environment, saying why; `where`: what asked for it.
Device resolve_device(const std::string& device, const std::string& where, Comm& comm);

/// run.device of a config whose value is "auto" becomes what it means here.
Device resolve_device(LoadedConfig& loaded, Comm& comm);

/// Memory of a GPU for each rank that uses it, the least of all ranks; 0 on the CPU.
int64_t gpu_bytes_per_rank(const MpiSession& mpi, Device device, Comm& comm);
/// The sizes that a config left to the plan, as it chose them: the config of the run has them.
void resolve_sizes(LoadedConfig& loaded, const RunPlan& plan, int64_t gpu_bytes);

/// Makes one of the GPUs that this rank sees its own: the ranks of a node take turns.
void select_gpu(const MpiSession& mpi);

/// The device of a rank; one that does not compute has no GPU. All ranks of `comm` call it: two on one GPU
/// are Exit::usage unless `shared`. A GPU is known by its UUID: a launcher may show every rank its own as
/// number 0.
Device take_device(const MpiSession& mpi, Device device, Comm& comm, bool computes, bool shared);
/// Exit::environment where less of the GPU is free than the plan needs on this rank.
void require_free_memory(const RunPlan& plan, int rank);

}  // namespace temper
