#pragma once
// What a job script hears of the checkpoints of its run, wherever run.dir is.

#include <cstdint>
#include <string>

namespace temper {

/// Writes "STEP PATH" and an end of line, the path absolute, into the file that TEMPER_SAVED_FILE names,
/// whole or not at all; without that variable nothing. A file that cannot be written is a warning: the
/// checkpoint is there.
void tell_saved(int64_t step, const std::string& checkpoint);

}  // namespace temper
