#pragma once
// `temper help`: verbs and options from the table of the command line, keys from the field list of the
// config.

#include <span>
#include <string>
#include <vector>

#include "src/core/check.h"
#include "src/run/verbs/command_line.h"

namespace temper {

/// Text of a topic: "" (overview), a page (topics.h), a verb, a key, a section, or one of help_topics(). An
/// unknown topic is Error(Exit::usage) with the nearest ones.
std::string help_text(const std::string& topic, bool all = false);

struct ExitText {
  Exit code;
  const char* meaning;
};
std::span<const ExitText> exit_texts();

/// All that `temper help` has a text of, but for single keys.
std::vector<std::string> help_topics();
/// What an option does, its range and default.
std::string option_help(const OptionSpec& option);
/// The script with which "bash", "zsh" or "fish" completes temper's words; another shell is Exit::usage.
std::string completion_text(const std::string& shell);
/// The manual page, in roff.
std::string manual_text();

int run_help(const CommandLine& line);

}  // namespace temper
