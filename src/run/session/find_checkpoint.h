#pragma once
// Which checkpoint a path or a run folder means, and whether it is sound.

#include <string>

#include "src/comm/comm.h"

namespace temper {

/// The newest checkpoint of `folder` that verifies (rank 0 looks, all ranks get its path); the log says which
/// were passed over, and why. Empty: there are none; Exit::data when there are, but no sound one.
std::string find_checkpoint(const std::string& folder, Comm& comm);
/// The checkpoint that `path` names (see resolve_checkpoint), after rank 0 found it sound.
std::string sound_checkpoint(const std::string& path, Comm& comm);

/// `path` is a step folder, or a run folder: then its newest checkpoint.
std::string resolve_checkpoint(const std::string& path);

}  // namespace temper
