#include "src/run/verbs/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/config/units/byte_size.h"
#include "src/config/config.h"
#include "src/config/load.h"
#include "src/config/typed/meant.h"
#include "src/config/typed/peer_keys.h"
#include "src/core/check.h"
#include "src/core/split.h"
#include "src/core/text/nearest.h"

namespace temper {
namespace {

[[noreturn]] void fail_usage(const std::string& what, const std::string& where, const std::string& why,
                             const std::string& fix) {
  fail(Exit::usage, {.what = what, .where = where, .why = why, .fix = fix});
}

template <class T>
bool parse_number(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// 0: it is no size.
int64_t parse_bytes(const std::string& text) {
  int64_t bytes = 0;
  return parse_number(text, bytes) ? bytes : parse_byte_size(text).value_or(0);
}

/// GiB of cards with this much on the label, rounded down to 0.1: the driver gave 79.18 for an H100 here; for
/// H200s, not measured here, public logs show 139.72 to 139.81.
constexpr std::pair<std::string_view, double> kCards[] = {{"80GB", 79.1}, {"141GB", 139.7}};

/// A number is GiB; 0: it is no size.
double parse_gib(const std::string& text) {
  constexpr double kGiB = 1073741824.0;
  double gib = 0;
  if (parse_number(text, gib)) return gib;
  for (const auto& [label, real] : kCards)
    if (parse_byte_size(text) == parse_byte_size(label)) return real;
  return static_cast<double>(parse_byte_size(text).value_or(0)) / kGiB;
}

/// "BF16" and "bfloat16" as the option has it; any other value as it is.
std::string meant_value(const OptionSpec& option, const std::string& value) {
  if (option.kind != OptionKind::choice) return value;
  const std::vector<std::string> words = split(option.value, '|');
  const std::vector<std::string_view> views(words.begin(), words.end());
  return std::string(meant_word(value, views).value_or(value));
}

/// Why `value` is illegal for the option, or nothing.
std::string value_defect(const OptionSpec& option, const std::string& value) {
  if (option.kind == OptionKind::integer) {
    int64_t number = 0;
    const bool legal = parse_number(value, number) && static_cast<double>(number) >= option.low &&
                       static_cast<double>(number) <= option.high;
    return legal ? "" : fmt::format("an integer is wanted, {}", option_range(option));
  }
  if (option.kind == OptionKind::bytes)
    return parse_bytes(value) > 0 ? "" : "a number of bytes is wanted, or a size such as \"5GB\" or \"4GiB\"";
  if (option.kind == OptionKind::memory) {
    const double gib = parse_gib(value);
    return gib >= option.low && gib <= option.high ? ""
                                                   : fmt::format(
                                                         "GiB are wanted, {}, or a size: \"80GB\" and "
                                                         "\"141GB\" are what such cards have, \"40GiB\"",
                                                         option_range(option));
  }
  if (option.kind == OptionKind::number) {
    double number = 0;
    const bool legal = parse_number(value, number) && std::isfinite(number) && number <= option.high &&
                       (number >= option.low || (option.or_zero && number == 0));
    return legal ? "" : fmt::format("a number is wanted, {}", option_range(option));
  }
  if (option.kind == OptionKind::choice) {
    const std::vector<std::string> words = split(option.value, '|');
    if (std::find(words.begin(), words.end(), value) != words.end()) return "";
    return fmt::format("legal: {}{}", option.value, did_you_mean(value, words));
  }
  return value.empty() && option.name != "--prompt" ? "an empty value" : "";
}

/// "--model DIR", "(--model DIR | --checkpoint DIR)".
std::string required_usage(const OptionSpec& option) {
  if (option.unless.empty()) return option_usage(option);
  return fmt::format("({} | {} {})", option_usage(option), option.unless, option.value);
}

class Parser {
 public:
  Parser(const VerbSpec& verb, std::span<const std::string> arguments) : verb_(verb), arguments_(arguments) {
    line_.verb = verb.name;
  }

  CommandLine parse() {
    while (at_ < arguments_.size()) {
      const std::string& argument = arguments_[at_++];
      if (!only_words_ && argument == "--")
        only_words_ = true;
      else if (!only_words_ && (argument == "--help" || argument == "-h"))
        return help();
      else if (!only_words_ && argument.size() > 1 && argument[0] == '-')
        take_option(argument);
      else
        take_word(argument);
    }
    require();
    return std::move(line_);
  }

 private:
  CommandLine help() const {
    return {.verb = "help", .positional = std::string(verb_.name), .overrides = {}, .options = {}};
  }
  std::string where() const { return "temper " + std::string(verb_.name); }
  std::string see() const {
    return fmt::format("usage: {}; see `temper help {}`", verb_usage(verb_), verb_.name);
  }

  const OptionSpec* find_option(std::string_view name) const {
    for (const OptionSpec& option : verb_.options)
      if (option.name == name) return &option;
    return nullptr;
  }

  void take_option(const std::string& argument) {
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const OptionSpec* option = find_option(name);
    if (!option) {
      std::vector<std::string> names{"--help"};
      for (const OptionSpec& known : verb_.options) names.emplace_back(known.name);
      const std::string hint =
          peer_key_hint(std::string_view(name).substr(std::min(name.find_first_not_of('-'), name.size())));
      fail_usage("unknown option", where(),
                 fmt::format("`{}` has no option {}{}", verb_.name, name,
                             hint.empty() ? did_you_mean(name, names) : hint),
                 see());
    }
    if (line_.has(name)) fail_usage("an option is given twice", where(), name, "leave one of them out");
    std::vector<std::string>& values = line_.options[name];
    if (option->kind == OptionKind::flag) {
      if (equals != std::string::npos)
        fail_usage("an option takes no value", where(), argument, "write " + name);
      return;
    }
    if (equals != std::string::npos)
      values.push_back(argument.substr(equals + 1));
    else
      take_values(*option, values);
    for (std::string& value : values) {
      value = meant_value(*option, value);
      if (const std::string why = value_defect(*option, value); !why.empty())
        fail_usage("illegal value of an option", where(), fmt::format("{} \"{}\": {}", name, value, why),
                   see());
    }
  }

  /// One value, or for a list of files all words up to the next option or override.
  void take_values(const OptionSpec& option, std::vector<std::string>& values) {
    const auto is_value = [&] {
      if (at_ >= arguments_.size()) return false;
      const std::string& next = arguments_[at_];
      if (find_option(next.substr(0, next.find('='))) || next == "--help" || next == "--") return false;
      return option.kind != OptionKind::files || (next[0] != '-' && !is_override(next));
    };
    if (!is_value()) fail_usage("an option needs a value", where(), option_usage(option), see());
    do values.push_back(arguments_[at_++]);
    while (option.kind == OptionKind::files && is_value());
  }

  /// A path may hold '=' too, but not as section.key=.
  bool is_override(const std::string& word) const {
    if (verb_.overrides == Overrides::none) return false;
    const std::string key = word.substr(0, word.find('='));
    return override_defect(word).empty() && key.find('/') == std::string::npos;
  }

  void take_word(const std::string& word) {
    if (is_override(word)) {
      if (verb_.overrides == Overrides::rollout && !word.starts_with("rollout."))
        fail_usage("illegal override", where(),
                   fmt::format("`{}`: this verb takes rollout.key=value only", word), see());
      line_.overrides.push_back(word);
    } else if (!verb_.positional.empty() && !has_positional_) {
      line_.positional = word;
      has_positional_ = true;
    } else if (has_positional_ && verb_.positional.find("...") != std::string_view::npos) {
      line_.further.push_back(word);
    } else {
      fail_usage("unexpected argument", where(), fmt::format("\"{}\"{}", word, hint_of(word)), see());
    }
  }

  /// What to say of `lr=1e-6`, a key needs its section, and of `optimizer.lr`, it needs a value.
  std::string hint_of(const std::string& word) const {
    const std::string name = word.substr(0, word.find('='));
    std::string hint = peer_key_hint(name);
    std::vector<std::string> keys;
    for (const KeyDoc& doc : config_key_docs())
      if (verb_.overrides == Overrides::all ||
          (verb_.overrides == Overrides::rollout && doc.key.starts_with("rollout.")))
        keys.push_back(doc.key);
    if (name == word)
      return std::find(keys.begin(), keys.end(), name) == keys.end() ? "" : "; write " + name + "=VALUE";
    return hint.empty() ? did_you_mean(name, keys) : hint;
  }

  void require() const {
    const bool needed = !verb_.positional.empty() && verb_.positional[0] != '[';
    if (needed && line_.positional.empty())
      fail_usage("an argument is missing", where(), fmt::format("{} is not given", verb_.positional), see());
    for (const OptionSpec& option : verb_.options)
      if (option.required && !line_.has(std::string(option.name)) && !line_.has(std::string(option.unless)))
        fail_usage("an option is missing", where(), fmt::format("{} is not given", required_usage(option)),
                   see());
    std::string all;
    int given = 0;
    for (const std::string_view name : verb_.one_of) {
      given += line_.has(std::string(name)) ? 1 : 0;
      all += fmt::format("{}{}", all.empty() ? "" : " or ", name);
    }
    const bool needs_none = given == 0 && line_.has(std::string(verb_.or_this));
    if (!verb_.one_of.empty() && given != 1 && !needs_none)
      fail_usage(given == 0 ? "an option is missing" : "options exclude each other", where(),
                 given == 0 ? all + " is not given" : fmt::format("{} of {} are given", given, all),
                 "give exactly one of " + all);
  }

  const VerbSpec& verb_;
  std::span<const std::string> arguments_;
  size_t at_ = 0;
  bool only_words_ = false, has_positional_ = false;
  CommandLine line_;
};

}  // namespace

const VerbSpec& find_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const VerbSpec& verb : verbs()) {
    if (verb.name == name) return verb;
    names.emplace_back(verb.name);
  }
  std::string all;
  for (const std::string& known : names) all += fmt::format("{}{}", all.empty() ? "" : ", ", known);
  fail_usage("unknown command", name,
             fmt::format("temper has no verb `{}`{}", name, did_you_mean(name, names)),
             "verbs: " + all + "; see `temper help`");
}

std::string CommandLine::text(const std::string& option, const std::string& fallback) const {
  const auto found = options.find(option);
  return found == options.end() || found->second.empty() ? fallback : found->second.front();
}

int64_t CommandLine::integer(const std::string& option, int64_t fallback) const {
  int64_t value = fallback;
  if (has(option) && !parse_number(text(option), value)) value = parse_bytes(text(option));
  return value;
}

double CommandLine::number(const std::string& option, double fallback) const {
  double value = fallback;
  if (has(option)) CHECK(parse_number(text(option), value), "option {} was not checked", option);
  return value;
}

int64_t CommandLine::memory(const std::string& option, int64_t fallback) const {
  return has(option) ? static_cast<int64_t>(parse_gib(text(option)) * 1073741824.0) : fallback;
}

std::vector<std::string> CommandLine::list(const std::string& option) const {
  const auto found = options.find(option);
  return found == options.end() ? std::vector<std::string>{} : found->second;
}

std::vector<std::string> CommandLine::words() const {
  std::vector<std::string> words{positional};
  words.insert(words.end(), further.begin(), further.end());
  return words;
}

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  const std::string first = arguments.empty() ? "--help" : arguments[0];
  if (first == "--version" || first == "version")
    return {.verb = "version", .positional = {}, .overrides = {}, .options = {}};
  if (first == "--help" || first == "-h")
    return {.verb = "help", .positional = {}, .overrides = {}, .options = {}};
  return Parser(find_verb(first), std::span(arguments).subspan(1)).parse();
}

CommandLine parse_command_line(int argc, const char* const* argv) {
  return parse_command_line(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}

std::string option_usage(const OptionSpec& option) {
  std::string text(option.name);
  if (!option.value.empty()) text += fmt::format(" {}", option.value);
  return option.kind == OptionKind::files ? text + " ..." : text;
}

std::string option_range(const OptionSpec& option) {
  constexpr double kNoLimit = 1e18;
  const std::string zero = option.or_zero ? "0, or " : "";
  if (option.high >= kNoLimit) return fmt::format("{}at least {:g}", zero, option.low);
  return fmt::format("{}{:g} to {:g}", zero, option.low, option.high);
}

std::string verb_usage(const VerbSpec& verb) {
  std::string text = fmt::format("temper {}", verb.name);
  if (!verb.positional.empty()) text += fmt::format(" {}", verb.positional);
  for (const OptionSpec& option : verb.options)
    if (option.required) text += fmt::format(" {}", required_usage(option));
  if (!verb.one_of.empty()) {
    std::string alternatives;
    for (const OptionSpec& option : verb.options)
      if (std::find(verb.one_of.begin(), verb.one_of.end(), option.name) != verb.one_of.end())
        alternatives += fmt::format("{}{}", alternatives.empty() ? "" : " | ", option_usage(option));
    if (!verb.or_this.empty()) alternatives += fmt::format(" | {}", verb.or_this);
    text += fmt::format(" ({})", alternatives);
  }
  if (verb.overrides == Overrides::all) text += " [section.key=value ...]";
  if (verb.overrides == Overrides::rollout) text += " [rollout.key=value ...]";
  return text + (verb.options.empty() ? "" : " [options]");
}

}  // namespace temper
