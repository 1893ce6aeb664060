// `temper help man`: the manual page, for `man -l -`.

#include "src/config/config.h"
#include "src/core/check.h"
#include "src/core/split.h"
#include "src/rl/registry.h"
#include "src/run/report/metric_docs.h"
#include "src/run/verbs/help/help.h"
#include "src/run/verbs/help/topics.h"

namespace temper {
namespace {

/// Text of a line as roff shows it: nothing in it is a request or an escape.
std::string roff(std::string_view text) {
  std::string out;
  if (!text.empty() && (text[0] == '.' || text[0] == '\'')) out = "\\&";
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\'')
      out += "\\(aq";
    else if (c == '`')
      out += "\\(ga";
    else
      out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string tagged(std::string_view tag, std::string_view text) {
  std::string broken;  // a list may go on in the next line behind each comma
  for (const char c : roff(tag)) broken += c == ',' ? ",\\:" : std::string(1, c);
  return fmt::format(".TP\n.B {}\n{}\n", broken, roff(text));
}

std::string verb_manual(const VerbSpec& verb) {
  std::string text =
      fmt::format(".SS {}\n.B {}\n.PP\n{}\n", roff(verb.name), roff(verb_usage(verb)), roff(verb.help));
  for (const OptionSpec& option : verb.options) text += tagged(option_usage(option), option_help(option));
  return text;
}

std::string key_manual(const KeyDoc& doc) {
  std::string text = doc.help;
  if (!doc.type.empty()) text += fmt::format(". {}{}", doc.type, doc.unit.empty() ? "" : ", " + doc.unit);
  text += doc.required ? "; required" : "; default: " + doc.default_text;
  return tagged(doc.key, text + "; legal: " + doc.legal);
}

/// The pages as they are written, four columns in.
std::string topics_manual() {
  std::string text = ".SH TOPICS\nAlso by temper help TOPIC.\n";
  for (const TopicPage& page : topic_pages()) {
    text += fmt::format(".SS {}\n.nf\n.in 4n\n", roff(page.name));
    for (const std::string& line : split(page.text, '\n')) text += (line.empty() ? "" : roff(line)) + "\n";
    text += ".in\n.fi\n";
  }
  return text;
}

std::string rewards_manual() {
  std::string text =
      ".SH REWARDS\nOf reward.functions: \"NAME\" or {name = \"NAME\", weight = 1, options}.\n";
  for (const RewardDoc& reward : reward_docs()) text += tagged(reward.name, reward.help);
  return text;
}

std::string metrics_manual() {
  std::string text = ".SH METRICS\nmetrics.jsonl has a line per step. {a,b}: each of these; <x>: any name.\n";
  for (const MetricDoc& metric : metric_docs()) text += tagged(metric.name, metric.help);
  return text + ".PP\ntiming_s/ and perf/ differ between two runs of one config; nothing else does.\n";
}

std::string exits_manual() {
  std::string text = ".SH EXIT STATUS\nAlso the code given to MPI_Abort.\n";
  for (const ExitText& row : exit_texts())
    text += tagged(std::to_string(static_cast<int>(row.code)), row.meaning);
  return text;
}

}  // namespace

std::string manual_text() {
  std::string text =
      ".TH TEMPER 1\n.nh\n.ad l\n.SH NAME\ntemper \\- post\\-trains language models with reinforcement "
      "learning\n"
      ".SH SYNOPSIS\n";
  for (const VerbSpec& verb : verbs()) text += fmt::format(".B {}\n.br\n", roff(verb_usage(verb)));
  text +=
      ".SH DESCRIPTION\nOne program that reads a Hugging Face folder, generates, scores, trains, and writes "
      "a Hugging\n"
      "Face folder. Started by mpirun or srun, or with \\-\\-local N, its ranks share the work. Results go "
      "to stdout;\n"
      "logs, progress and errors to stderr.\n.SH COMMANDS\n";
  for (const VerbSpec& verb : verbs()) text += verb_manual(verb);
  text += ".SH CONFIG KEYS\nOf the TOML file that CONFIG names, or section.key=value on the command line.\n";
  std::string section;
  for (const KeyDoc& doc : config_key_docs()) {
    if (doc.later) continue;
    if (const std::string of = doc.key.substr(0, doc.key.find('.')); of != section) {
      section = of;
      text += fmt::format(".SS [{}]\n", section);
    }
    text += key_manual(doc);
  }
  return text + topics_manual() + rewards_manual() + metrics_manual() + exits_manual() + ".SH ENVIRONMENT\n" +
         roff(help_text("environment")) + "\n";
}

}  // namespace temper
