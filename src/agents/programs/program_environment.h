#pragma once
// The environment of programs that play sessions: made, not inherited.

#include <map>
#include <string>
#include <vector>

#include "src/agents/programs/harness.h"

namespace temper {

/// What a config's env says for this run: "$NAME" is the variable NAME. Exit::usage where it is not set.
std::map<std::string, std::string> resolved_env(const HarnessConfig& config);

/// "NAME=VALUE": few of this process (PATH, HOME, LANG and their like, and where libraries and certificates
/// are), then those by which clients find the policy (`start` null: a service, which has them by session),
/// then `env`.
std::vector<std::string> program_environment(const std::map<std::string, std::string>& env,
                                             const HarnessStart* start);

/// argv with whole paths in the place of words that name a file from this working folder, as the program has
/// another one. Exit::usage where argv[0] is no program.
std::vector<std::string> program_words(const std::vector<std::string>& argv);

}  // namespace temper
