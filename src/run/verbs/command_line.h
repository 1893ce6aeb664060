#pragma once
// The command line: one table of verbs with their options and functions, the parser that follows it, and the
// checked result. `temper help` is written from the same table. Every mistake is Error(Exit::usage) with the
// nearest legal spelling.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

/// bytes: "5GB" too; memory: GiB, or a size.
enum class OptionKind { flag, text, integer, bytes, memory, number, choice, files };

struct OptionSpec {
  std::string_view name;  // "--ranks"
  OptionKind kind = OptionKind::flag;
  std::string_view value;     // "N"; "fp32|bf16" for a choice; empty for a flag
  std::string_view standard;  // default in words
  std::string_view help;
  bool required = false;
  double low = 0, high = 0;      // integer, number and memory (GiB)
  bool or_zero = false;          // 0 is legal too
  std::string_view unless = {};  // required but with this option
};

enum class Overrides { none, all, rollout };  // `section.key=value` arguments: any, or only rollout.*

struct CommandLine;

struct VerbSpec {
  std::string_view name;
  std::string_view positional;  // "CONFIG"; "[TOPIC...]" may be left out; "RUN...": one or more; empty: none
  Overrides overrides = Overrides::none;
  std::span<const OptionSpec> options;
  int (*run)(const CommandLine&);  // returns the exit code
  std::string_view help;
  std::span<const std::string_view> one_of;  // exactly one of these options must be given
  std::string_view or_this = {};             // or none of them, with this option
};
std::span<const VerbSpec> verbs();
/// Exit::usage names the nearest verb.
const VerbSpec& find_verb(const std::string& name);

struct CommandLine {
  std::string verb;  // also "version"
  std::string positional;
  std::vector<std::string> overrides;
  std::map<std::string, std::vector<std::string>> options;  // "--ranks" -> {"4"}; flags have no values
  std::vector<std::string> further = {};                    // words after the positional, of "RUN..."

  bool has(const std::string& option) const { return options.contains(option); }
  /// The value, or `fallback` when the option is absent.
  std::string text(const std::string& option, const std::string& fallback = "") const;
  int64_t integer(const std::string& option, int64_t fallback) const;
  double number(const std::string& option, double fallback) const;
  /// Bytes. "80GB" and "141GB" are what such cards have: less than their names say in GiB, and more than in
  /// GB.
  int64_t memory(const std::string& option, int64_t fallback) const;
  std::vector<std::string> list(const std::string& option) const;
  /// The positional and the words after it.
  std::vector<std::string> words() const;
};

/// `arguments` without the program's name. `VERB --help` comes back as verb "help" with the verb as
/// positional.
CommandLine parse_command_line(const std::vector<std::string>& arguments);
CommandLine parse_command_line(int argc, const char* const* argv);

/// "--replay FILE ...", "--json".
std::string option_usage(const OptionSpec& option);
/// "1 to 4096", "at least 0": what a number may be.
std::string option_range(const OptionSpec& option);
/// "temper check CONFIG [section.key=value ...] [options]".
std::string verb_usage(const VerbSpec& verb);

}  // namespace temper
