#pragma once
// Which checkpoint a path or a run folder means, and whether it is sound.

#include <string>

namespace temper {

/// The newest checkpoint of `folder` that verifies; the log says which were passed over, and why. Empty:
/// there is none. One that `named` names is not passed over: when it is damaged, that is Exit::data.
std::string newest_sound_checkpoint(const std::string& folder, const std::string& named = "");

/// `path` is a step folder, or a run folder: then its newest checkpoint.
std::string resolve_checkpoint(const std::string& path);

}  // namespace temper
