#include "src/run/verbs/help/help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "src/config/config.h"
#include "src/config/methods.h"
#include "src/config/typed/peer_keys.h"
#include "src/core/check.h"
#include "src/core/process/results.h"
#include "src/core/text/fold.h"
#include "src/core/text/nearest.h"
#include "src/rl/registry.h"
#include "src/run/report/metric_docs.h"
#include "src/run/verbs/help/topics.h"

namespace temper {
namespace {

constexpr std::array kExits{
    ExitText{Exit::ok, "done"},
    ExitText{Exit::usage, "bad command line or config, nothing was started"},
    ExitText{Exit::data, "bad input data, model folder or checkpoint"},
    ExitText{Exit::internal, "internal error"},
    ExitText{Exit::busy, "run folder in use or not writable"},
    ExitText{Exit::storage, "storage or memory failed in a run"},
    ExitText{Exit::retry, "saved; run the same command again (signal, time limit, peer or GPU lost)"},
    ExitText{Exit::hang, "hang, report written"},
    ExitText{Exit::numerics, "stopped on non-finite or exploding numbers, dump written"},
    ExitText{Exit::environment, "wrong environment (no driver, wrong launch; a GPU lost, and no checkpoint)"},
    ExitText{Exit::bits, "verify-bits: log-probs of rollout and trainer differ"},
};

std::string exit_codes_text() {
  std::string text = "exit codes (also the code given to MPI_Abort)\n";
  for (const ExitText& row : exit_texts())
    text += fmt::format("  {:>3}  {}\n", static_cast<int>(row.code), row.meaning);
  return text +
         "Where a rank is killed the others end with 75 (70 without a checkpoint); mpirun goes\n"
         "by the killed one and ends with 128 + its signal, 137 after SIGKILL.\n";
}

std::string environment_text() {
  return "temper reads no environment variables as options, but for OMP_NUM_THREADS, the\n"
         "threads of a rank where neither run.threads nor --threads says them; everything\n"
         "else is in the config and on the command line. Without any of the three the\n"
         "ranks of a host divide the cores of their affinity masks and the CPU quotas of\n"
         "their control groups (cgroup v1, v2). The launcher's own variables (mpirun,\n"
         "srun) decide ranks; reward programs do not see them. Without a launcher there\n"
         "is one rank, and no MPI; with --local N the program starts N ranks of this host\n"
         "by the mpirun of Open MPI that is first in PATH, whatever job it is in.\n"
         "TEMPER_SAVED_FILE names a file that gets \"STEP PATH\" of the checkpoint that a\n"
         "run has saved last, for job scripts.\n"
         "XDG_CACHE_HOME or HOME says where the fastest library algorithm of each matrix\n"
         "shape on a GPU is kept (temper/gemm-*.json); the files may be removed at any\n"
         "time and never change a result.\n"
         "Where /dev/shm has too little room for the messages of the ranks, their files\n"
         "are in TMPDIR or /tmp, unless OMPI_MCA_btl_vader_backing_directory names a\n"
         "folder.\n";
}

std::string rewards_text() {
  std::string text = "functions of reward.functions: \"NAME\" or {name = \"NAME\", weight = 1, options}\n";
  for (const RewardDoc& reward : reward_docs())
    text += fmt::format("  {:<10} {}\n", reward.name, reward.help);
  return text;
}

/// The rows behind algorithm.name, algorithm.advantage and algorithm.loss.
std::string methods_text() {
  std::string text = "algorithm.name\n";
  for (const AlgorithmTraits& row : kAlgorithms) {
    std::string defaults;
    for (const MethodDefault& d : row.defaults) defaults += fmt::format("; {} = {}", d.key, d.value);
    text += fmt::format("  {:<20} {}{}\n", row.name, row.source, defaults);
  }
  text += "algorithm.advantage\n";
  for (const AdvantageTraits& row : kAdvantages)
    text += fmt::format("  {:<20} {}; {}\n", row.name, row.formula, row.source);
  text += "algorithm.loss\n";
  for (const LossTraits& row : kLosses)
    text += fmt::format("  {:<20} {}; {}\n", row.name, row.formula, row.source);
  return text;
}

std::string overview_text() {
  std::string text = "temper post-trains language models with reinforcement learning, in one program.\n\n";
  for (const VerbSpec& verb : verbs()) text += fmt::format("  {:<11} {}\n", verb.name, verb.help);
  text += "\n";
  for (const TopicPage& page : topic_pages())
    text += fmt::format("  temper help {:<15} {}\n", page.name, page.summary());
  return text +
         "\n  temper help VERB            options of a verb\n"
         "  temper help keys            every config key; `temper help rollout` a section, `temper help "
         "run.seed` a key\n"
         "  temper help environment     variables that are read\n"
         "  temper help completion bash a script for the shell (bash, zsh, fish)\n"
         "  temper help man | man -l -  all of this\n"
         "  temper --version            versions as built and as found\n"
         "\nResults go to stdout; logs, progress and errors to stderr.\n\n" +
         exit_codes_text();
}

std::string verb_text(const VerbSpec& verb) {
  std::string text = fmt::format("{}\n\n  {}\n", verb_usage(verb), verb.help);
  if (!verb.options.empty()) text += "\noptions\n";
  for (const OptionSpec& option : verb.options)
    text += fmt::format("  {:<34} {}\n", option_usage(option), option_help(option));
  if (verb.overrides == Overrides::all)
    text += "\n  section.key=value sets a config key; the right side is a TOML value or a bare string.\n";
  if (verb.overrides == Overrides::rollout)
    text +=
        "\n  rollout.key=value sets a sampling key, for example rollout.temperature=0.7 "
        "rollout.max_new_tokens=64.\n";
  return text + "\n  exit codes: temper help exit-codes\n";
}

std::string metrics_text() {
  std::string text;
  for (const MetricDoc& metric : metric_docs()) text += fmt::format("  {}  {}\n", metric.name, metric.help);
  return text + "timing_s/ and perf/ differ between two runs of one config; nothing else does.\n";
}

std::string key_text(const KeyDoc& doc) {
  std::string text = fmt::format("{}\n  {}\n", doc.key, doc.help);
  if (!doc.type.empty())
    text +=
        fmt::format("  type:    {}{}\n", doc.type, doc.unit.empty() ? "" : fmt::format(" ({})", doc.unit));
  if (doc.required) text += "  default: none, this key is required\n";
  if (!doc.required) text += fmt::format("  default: {}\n", doc.default_text);
  return text + fmt::format("  legal:   {}\n", doc.legal);
}

/// Keys of "rollout", "roles.trainer".
std::string section_text(const std::string& section) {
  std::string text;
  for (const KeyDoc& doc : config_key_docs())
    if (doc.key.starts_with(section + "."))
      text += fmt::format("{}{}", text.empty() ? "" : "\n", key_text(doc));
  return text;
}

/// A line for each key of the section, below a page that has its name.
std::string section_rows(const std::string& section) {
  std::string text;
  for (const KeyDoc& doc : config_key_docs())
    if (!doc.later && doc.key.starts_with(section + "."))
      text += fmt::format("  {:<34} {}\n", doc.key, doc.help);
  return text;
}

/// A page with what the tables of the program say of its subject.
std::string page_text(const std::string& topic) {
  std::string text;
  for (const VerbSpec& verb : verbs())
    if (verb.name == topic) text += verb_text(verb) + "\n";
  text += topic_text(topic);
  if (topic == "metrics") text += metrics_text();
  if (topic == "rewards") text += rewards_text();
  if (topic == "algorithm") text += methods_text();
  return text + section_rows(topic);
}

/// Every key, under a line for each section. `all`: those of later versions too.
std::string keys_text(bool all) {
  std::string text, section;
  for (const KeyDoc& doc : config_key_docs()) {
    if (doc.later && !all) continue;
    if (const std::string of = doc.key.substr(0, doc.key.find('.')); of != section) {
      section = of;
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += "\n" + key_text(doc);
  }
  return text + (all ? "" : "\nkeys of later versions: temper help keys --all\n");
}

/// Columns of the terminal that stdout is; 0: it is none, or does not say.
size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

[[noreturn]] void fail_topic(const std::string& topic) {
  std::vector<std::string> names = help_topics();
  for (const KeyDoc& doc : config_key_docs()) names.push_back(doc.key);
  const std::string hint = peer_key_hint(topic);
  fail(Exit::usage,
       {.what = "unknown topic of help",
        .where = topic,
        .why = "it is no verb, key or section" + (hint.empty() ? did_you_mean(topic, names) : hint),
        .fix = "see `temper help` and `temper help keys`"});
}

}  // namespace

std::span<const ExitText> exit_texts() { return kExits; }

std::vector<std::string> help_topics() {
  std::vector<std::string> topics{"keys", "exit-codes", "environment", "completion", "man"};
  const auto add = [&](std::string_view topic) {
    if (std::find(topics.begin(), topics.end(), topic) == topics.end()) topics.emplace_back(topic);
  };
  for (const TopicPage& page : topic_pages()) add(page.name);
  for (const VerbSpec& verb : verbs()) add(verb.name);
  for (const KeyDoc& doc : config_key_docs()) add(std::string_view(doc.key).substr(0, doc.key.find('.')));
  return topics;
}

std::string option_help(const OptionSpec& option) {
  std::string text(option.help);
  if (option.kind == OptionKind::integer || option.kind == OptionKind::number ||
      option.kind == OptionKind::memory)
    text += fmt::format("; legal: {}", option_range(option));
  if (option.required) text += "; required";
  if (!option.unless.empty()) text += fmt::format(", or {}", option.unless);
  if (!option.standard.empty()) text += fmt::format("; default: {}", option.standard);
  return text;
}

std::string help_text(const std::string& topic, bool all) {
  if (topic.empty()) return overview_text();
  if (topic == "keys") return keys_text(all);
  if (!topic_text(topic).empty()) return page_text(topic);
  if (topic == "exit-codes") return exit_codes_text();
  if (topic == "environment") return environment_text();
  if (topic == "man") return manual_text();
  if (topic == "completion" || topic.starts_with("completion "))
    return completion_text(topic.substr(std::min(topic.size(), std::string("completion ").size())));
  for (const VerbSpec& verb : verbs())
    if (verb.name == topic) return verb_text(verb);
  for (const KeyDoc& doc : config_key_docs())
    if (doc.key == topic) return key_text(doc);
  const std::string section = section_text(topic);
  if (section.empty()) fail_topic(topic);
  return section;
}

int run_help(const CommandLine& line) {
  std::string topic;
  for (const std::string& word : line.words()) topic += (topic.empty() ? "" : " ") + word;
  std::string text = help_text(topic, line.has("--all"));
  const bool for_people = topic != "man" && !topic.starts_with("completion");
  constexpr size_t kFewest = 40;
  if (const size_t columns = terminal_columns(); for_people && columns >= kFewest)
    text = folded(text, columns);
  write_results(text);
  return 0;
}

}  // namespace temper
