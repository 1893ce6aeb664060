// `temper help completion bash|zsh|fish`: what a shell needs to complete verbs, options and keys.

#include <algorithm>

#include "src/config/config.h"
#include "src/core/check.h"
#include "src/core/split.h"
#include "src/core/text/nearest.h"
#include "src/run/verbs/help/help.h"

namespace temper {
namespace {

/// `text` in single quotes of a shell.
std::string quoted(std::string_view text, std::string_view inner_quote) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string(inner_quote) : std::string(1, c);
  return out + "'";
}

/// Keys that can be set behind a verb, each with '='.
std::vector<std::string> keys_of(const VerbSpec& verb) {
  std::vector<std::string> keys;
  if (verb.overrides == Overrides::none) return keys;
  for (const KeyDoc& doc : config_key_docs())
    if (!doc.later && (verb.overrides == Overrides::all || doc.key.starts_with("rollout.")))
      keys.push_back(doc.key + "=");
  return keys;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const VerbSpec& verb : verbs()) names.emplace_back(verb.name);
  return names;
}

/// What the words of a verb that are no options can be: nothing, files, or folders.
std::string_view files_of(const VerbSpec& verb) {
  return verb.positional == "CONFIG" ? "-f" : verb.positional.starts_with("RUN") ? "-d" : "";
}

std::string_view files_of(const OptionSpec& option) {
  return option.value == "FILE" ? "-f" : option.value == "DIR" ? "-d" : "";
}

// ---- bash

/// What may follow an option that wants a value.
std::string bash_values(const VerbSpec& verb, const OptionSpec& option) {
  const std::string_view files = files_of(option);
  std::string body = files.empty() ? "" : fmt::format("_temper_files {}; ", files);
  if (option.kind == OptionKind::choice)
    body = fmt::format("_temper_words '{}'; ", joined(split(option.value, '|')));
  return fmt::format("    '{} {}') {}return ;;\n", verb.name, option.name, body);
}

std::string bash_text() {
  std::string values, options, words;
  for (const VerbSpec& verb : verbs()) {
    std::vector<std::string> names{"--help"};
    for (const OptionSpec& option : verb.options) {
      names.emplace_back(option.name);
      if (option.kind != OptionKind::flag) values += bash_values(verb, option);
    }
    options += fmt::format("      {}) _temper_words '{}' ;;\n", verb.name, joined(names));
    std::vector<std::string> any = keys_of(verb);
    if (verb.name == "help") any = help_topics();
    words += fmt::format("    {}) _temper_words '{}'", verb.name, joined(any));
    if (!files_of(verb).empty()) words += fmt::format("; _temper_files {}", files_of(verb));
    words += " ;;\n";
  }
  return "# bash completion of temper\n"
         "_temper_words() {\n"
         "  local found; mapfile -t found < <(compgen -W \"$1\" -- \"$cur\")\n"
         "  COMPREPLY+=(\"${found[@]}\")\n"
         "  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2> /dev/null\n"
         "}\n"
         "_temper_files() {  # -f: files, -d: folders; none while a key is typed\n"
         "  local found; [[ ${#COMPREPLY[@]} == 0 || -z $cur ]] || return\n"
         "  mapfile -t found < <(compgen \"$1\" -- \"$cur\")\n"
         "  COMPREPLY+=(\"${found[@]}\"); compopt -o filenames 2> /dev/null\n"
         "}\n"
         "_temper() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "  COMPREPLY=()\n"
         "  if ((COMP_CWORD == 1)); then _temper_words '" +
         joined(verb_names()) +
         " --version --help'; return; fi\n"
         "  case \"$verb $before\" in\n" +
         values +
         "  esac\n"
         "  if [[ $cur == -* ]]; then\n    case $verb in\n" +
         options + "    esac\n    return\n  fi\n  case $verb in\n" + words +
         "  esac\n}\ncomplete -F _temper temper\n";
}

// ---- zsh

/// The text for `_arguments` and `_describe`: brackets and colons end a description.
std::string zsh_help(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("[]:\\").find(c) != std::string_view::npos) out += '\\';
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out;
}

std::string zsh_option(const OptionSpec& option) {
  std::string text = fmt::format("'{}[{}]", option.name, zsh_help(option.help));
  if (option.kind == OptionKind::flag) return text + "'";
  std::string_view action = files_of(option) == "-f"   ? "_files"
                            : files_of(option) == "-d" ? "_files -/"
                                                       : " ";
  const std::string choices = "(" + joined(split(option.value, '|')) + ")";
  if (option.kind == OptionKind::choice) action = choices;
  const std::string_view name = option.kind == OptionKind::choice ? "value" : option.value;
  return text + fmt::format(":{}:{}'", zsh_help(name), action);
}

std::string zsh_text() {
  std::string names, cases;
  for (const VerbSpec& verb : verbs()) {
    names += fmt::format("    '{}:{}'\n", verb.name, zsh_help(verb.help));
    std::string arguments = " '--help[what the options are]'";
    for (const OptionSpec& option : verb.options) arguments += " " + zsh_option(option);
    std::vector<std::string> any = keys_of(verb);
    if (verb.name == "help") any = help_topics();
    std::string action;
    if (!any.empty()) action += fmt::format("compadd -S \"\" -- {}; ", joined(any));
    if (!files_of(verb).empty()) action += files_of(verb) == "-f" ? "_files" : "_files -/";
    if (!action.empty()) arguments += fmt::format(" '*::word:{{{}}}'", action);
    cases += fmt::format("    {}) _arguments{} ;;\n", verb.name, arguments);
  }
  return "#compdef temper\n_temper() {\n  local -a verbs=(\n" + names +
         "  )\n  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n"
         "  local verb=$words[2]\n  shift words; (( CURRENT-- ))\n  case $verb in\n" +
         cases + "  esac\n}\n_temper \"$@\"\n";
}

// ---- fish

std::string fish_text() {
  std::string text = "# fish completion of temper\ncomplete -c temper -f\n";
  const auto fish = [](std::string_view words) { return quoted(words, "\\'"); };
  for (const VerbSpec& verb : verbs()) {
    text +=
        fmt::format("complete -c temper -n __fish_use_subcommand -a {} -d {}\n", verb.name, fish(verb.help));
    const std::string when = fmt::format("complete -c temper -n '__fish_seen_subcommand_from {}'", verb.name);
    for (const OptionSpec& option : verb.options) {
      text += fmt::format("{} -l {} -d {}", when, option.name.substr(2), fish(option.help));
      if (option.kind != OptionKind::flag) text += " -r";
      if (option.kind == OptionKind::choice)
        text += fmt::format(" -a {}", fish(joined(split(option.value, '|'))));
      if (files_of(option) == "-f") text += " -F";
      if (files_of(option) == "-d") text += " -a '(__fish_complete_directories)'";
      text += "\n";
    }
    std::vector<std::string> any = keys_of(verb);
    if (verb.name == "help") any = help_topics();
    if (!any.empty()) text += fmt::format("{} -a {}\n", when, fish(joined(any)));
    if (files_of(verb) == "-f") text += when + " -F\n";
    if (files_of(verb) == "-d") text += when + " -a '(__fish_complete_directories)'\n";
  }
  return text;
}

}  // namespace

std::string completion_text(const std::string& shell) {
  if (shell == "bash") return bash_text();
  if (shell == "zsh") return zsh_text();
  if (shell == "fish") return fish_text();
  fail(Exit::usage,
       {.what = "unknown shell",
        .where = "temper help completion " + shell,
        .why = "there is completion for bash, zsh and fish" + did_you_mean(shell, {"bash", "zsh", "fish"}),
        .fix = "temper help completion bash > /etc/bash_completion.d/temper"});
}

}  // namespace temper
