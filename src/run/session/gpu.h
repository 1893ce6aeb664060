#pragma once
// Which device the ranks of a program compute on, and which GPU is whose.

#include <string>

#include "src/comm/mpi_comm.h"
#include "src/config/config.h"
#include "src/core/device.h"

namespace temper {

/// The same on all ranks of `comm`: "auto" is a GPU where each of them finds one. "cuda" where one finds none
/// is Exit::environment, saying why; `where`: what asked for it.
Device resolve_device(const std::string& device, const std::string& where, Comm& comm);

/// run.device of a config whose value is "auto" becomes what it means here.
void settle_device(LoadedConfig& loaded, Comm& comm);

/// Makes one of the GPUs that this rank sees its own: the ranks of a node take turns.
void select_gpu(const MpiSession& mpi);

/// The device of a rank; one that does not compute has no GPU. All ranks of `comm` call it: two on one GPU
/// are Exit::usage unless `shared`. A GPU is known by its UUID: a launcher may show every rank its own as
/// number 0.
Device take_device(const MpiSession& mpi, Device device, Comm& comm, bool computes, bool shared);

}  // namespace temper
