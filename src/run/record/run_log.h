#pragma once
// The log of a rank: a file per rank, and what one of them also says on stderr.

#include <string>

namespace temper {

/// `file` empty: stderr only. Levels: debug, info, warn, error.
void start_log(const std::string& file, const std::string& level, int rank, bool on_stderr);

/// Where a rank of a run has its log.
std::string rank_log_file(const std::string& run_folder, int rank);

/// A line about what goes on, from any thread of rank 0. On a terminal it stays until the next line of any
/// kind replaces it (empty: goes away); elsewhere it is a line like others.
void log_progress(const std::string& text);
/// Seconds between such lines, where `seconds` are asked for: a terminal shows more. 0: none.
double progress_interval(double seconds);

}  // namespace temper
