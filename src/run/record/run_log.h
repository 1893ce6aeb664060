#pragma once
// The log of a rank: a file per rank, and what one of them also says on stderr.

#include <string>

namespace temper {

/// `file` empty: stderr only. Levels: debug, info, warn, error.
void start_log(const std::string& file, const std::string& level, int rank, bool on_stderr);

}  // namespace temper
