#pragma once
// What made the lines of a file of results: FILE.settings.json beside FILE, so that a command goes on only
// with what it would have made itself.

#include <map>
#include <string>

#include "src/config/config.h"
#include "src/core/digest/file_digest.h"
#include "src/core/json.h"

namespace temper {

/// Keys of the config that change what is sampled from a prompt, and how it is read and scored, with their
/// values as JSON. What paths lead to is not among them: that is said by digests.
Json sampling_settings(const Config& config);
/// The same of a [rollout] section alone.
Json sampling_settings(const RolloutConfig& section);

/// Content by name, without paths.
Json settings_of_files(const std::map<std::string, FileDigest>& files);

/// `file` goes on, or begins (`begun`: it holds results already). Exit::usage names each setting that is
/// another one now, with both values; a warning where nothing is known of what made the results. Settings
/// that one side does not know are not compared. Writes nothing.
void compare_output_settings(const std::string& file, const Json& settings, bool begun);
/// Puts them beside the file.
void write_output_settings(const std::string& file, const Json& settings);

}  // namespace temper
