#pragma once
// `temper help`: verbs and options from the table of the command line, keys from the field list of the
// config.

#include <string>

#include "src/run/verbs/command_line.h"

namespace temper {

/// Text of a topic: "" (overview), a verb, a key, a section, "keys", "exit-codes", "environment". An unknown
/// topic is Error(Exit::usage) with the nearest ones.
std::string help_text(const std::string& topic, bool all = false);

int run_help(const CommandLine& line);

}  // namespace temper
