#include "src/run/verbs/data_check.h"

#include <algorithm>
#include <cmath>

#include "src/config/sets/validation_sets.h"
#include "src/core/check.h"
#include "src/core/text/answer_text.h"
#include "src/core/text/short_number.h"
#include "src/data/dataset.h"
#include "src/io/hf/hf_import.h"
#include "src/models/parameter_specs.h"
#include "src/rl/rewards/reward_set.h"
#include "src/rl/rollout_metrics.h"
#include "src/run/groups/prompt_stream.h"
#include "src/run/host/model_host.h"
#include "src/run/host/same_vocabulary.h"
#include "src/run/plan/run_options.h"

namespace temper {
namespace {

constexpr int64_t kMostRows = 2048;  // looked at
constexpr size_t kShownIds = 64;
constexpr size_t kShownText = 2000;

/// The error of `look` becomes one of the check; false: there was one.
template <class Look>
bool sound(DataCheck& check, const char* key, const Look& look) {
  try {
    look();
    return true;
  } catch (const Error& e) {
    if (e.code() != Exit::data && e.code() != Exit::usage) throw;
    const Problem& p = e.problem();
    check.errors.push_back({key, p.where, p.what + ": " + p.why + "; " + p.fix, {}});
    return false;
  }
}

void check_folder(const Config& config, const ModelConfig& facts) {
  if (config.model.init == "random") return;
  ModelFolder folder = ModelFolder::open(config.model.path);
  folder.match_names(facts);
  folder.allow_unused(config.model.allow_unused);
  check_weights(folder, facts, parameter_specs(facts));
}

/// Rows of all files, and those that are looked at.
struct Rows {
  int64_t rows = 0;
  bool counted = true;
  std::vector<std::pair<std::string, Json>> records;  // with their places
};

std::string place_of(const std::string& path, const Line& line) {
  return line.number > 0 ? fmt::format("{}:{}", path, line.number)
                         : fmt::format("{}, byte {}", path, line.begin);
}

Rows read_rows(const std::vector<DataSource>& sources) {
  Rows all;
  const int64_t share = std::max<int64_t>(1, kMostRows / std::ssize(sources));
  for (const DataSource& source : sources) {
    const InputFile file(source.path);
    const LineSample sample = sample_lines(file, share);
    all.rows += sample.rows;
    all.counted = all.counted && sample.counted;
    for (const Line& line : sample.lines) {
      const std::string where = place_of(source.path, line);
      all.records.emplace_back(where, parse_data_line(read_line(file, line), where));
    }
  }
  return all;
}

/// How many of the answers no reward could ever be given for, or only for a response that says nothing, and
/// why not the first of them.
struct Answers {
  struct Lost {
    int64_t count = 0;
    std::string why, where;
    void add(const std::string& reason, const std::string& place) {
      if (count++ == 0) why = reason, where = place;
    }
  };
  Lost unreadable, unmatched;

  void look(const RewardSet& rewards, const Prompt& prompt, const std::string& place) {
    try {
      rewards.check_answer(prompt.answer, place, prompt.domain);
    } catch (const Error& e) {
      return unreadable.add(e.problem().what + ": " + e.problem().why, e.problem().where);
    }
    if (const std::string why = rewards.unmatched(prompt.answer, prompt.domain); !why.empty())
      unmatched.add(why, place);
  }
};

int64_t quantile(const std::vector<int64_t>& ascending, double share) {
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(ascending.size())));
  return ascending[std::max<size_t>(rank, 1) - 1];
}

/// Errors that a run would end with, too.
void judge(DataCheck& check, const Config& config, const PromptStream::Limits& limits, int64_t overlong,
           int64_t looked_at, const Answers& answers) {
  const std::string& rule = config.data.overlong;
  const bool cuts = rule == "truncate-left" && !limits.with_response;
  const bool none_fits = overlong == looked_at && !cuts;
  const std::string many =
      fmt::format("{} of {} prompts that were looked at are too long", overlong, looked_at);
  if (overlong > 0 && rule != "drop" && !cuts)
    check.errors.push_back({"data.overlong", "",
                            fmt::format("{} and \"{}\" would end the run; or raise rollout.max_prompt_tokens "
                                        "({} now)",
                                        many, rule, limits.max_prompt_tokens),
                            none_fits ? std::vector<Json>{} : std::vector<Json>{"drop"}});
  else if (none_fits)
    check.errors.push_back({"rollout.max_prompt_tokens", "", many + ": nothing is left to draw from", {}});
  if (answers.unreadable.count > 0)
    check.errors.push_back({"reward.functions",
                            answers.unreadable.where,
                            fmt::format("the rewards cannot read {} of {} answers; the first: {}",
                                        answers.unreadable.count, looked_at, answers.unreadable.why),
                            {}});
}

/// What a run does not end with, and nobody means.
void warn_of_data(DataCheck& check, const Config& config, const RunPlan& plan, const Answers& answers) {
  const int64_t looked_at = check.data.at("looked_at"), overlong = check.data.at("overlong");
  if (answers.unmatched.count > 0)
    check.warnings.push_back(
        fmt::format("{} of {} answers can never be matched; the first, {}, by the reward {}",
                    answers.unmatched.count, looked_at, answers.unmatched.where, answers.unmatched.why));
  const int64_t rows = check.data.at("rows");
  if (const size_t domains = check.data.value("domains", Json::object()).size(); domains > kMaxDomains)
    check.warnings.push_back(
        fmt::format("data.domain_key = \"{}\" tells {} domains apart; metrics have the {} of each step with "
                    "most responses",
                    config.data.domain_key, domains, kMaxDomains));
  const int64_t samples = check.data.value("turns", rows);  // of a line each turn may be one
  const bool all = looked_at == samples && config.data.overlong == "drop";
  const int64_t usable = samples - (all ? overlong : 0);
  const int64_t drawn = plan.generates ? plan.batch.prompts_per_step : plan.batch.samples_per_step;
  if (usable < drawn)
    check.warnings.push_back(
        fmt::format("data.train has {}{} and a step draws {}: it sees some of them twice",
                    count_text(usable, samples == rows ? "line" : "turn"),
                    usable < samples ? " that are not too long" : "", drawn));
}

/// A text with one of the ids ends the run; most tokenizers have a few that no text needs.
void compare_vocabularies(DataCheck& check, const ModelConfig& facts, const Tokenizer& tokenizer) {
  if (tokenizer.vocab_size() <= facts.vocab_size) return;
  check.warnings.push_back(fmt::format(
      "the tokenizer has ids up to {}, the model up to {}: a text that needs a larger one ends the run",
      tokenizer.vocab_size() - 1, facts.vocab_size - 1));
}

Json first_json(const Prompt& p, const std::string& where) {
  Json first{{"text", p.text}, {"ids", p.tokens}, {"where", where}, {"answer", shown_answer(p.answer)}};
  if (!p.response_tokens.empty()) first["response"] = p.response;
  if (!p.response_tokens.empty()) first["response_ids"] = p.response_tokens;
  if (!p.response_mask.empty()) first["response_mask"] = p.response_mask;
  return first;
}

/// What there is in lines that are looked at.
struct Found {
  std::vector<int64_t> lengths;  // of the prompts
  int64_t overlong = 0;
  Answers answers;
  std::map<std::string, int64_t> domains;
};

Found look_at(DataCheck& check, const Config& config, const PromptStream::Limits& limits,
              const std::optional<RewardSet>& rewards, const TextTools& text, const Rows& rows) {
  const PromptOptions options = prompt_options(config.data);
  const PromptBuilder builder(*text.tokenizer, text.chat_template(), options);
  const bool by_turn = limits.with_response && options.train_on == TrainOn::each;
  Found found;
  for (const auto& [where, record] : rows.records) {
    const int64_t turns = by_turn ? count_turns(record, options, where) : 1;
    for (int64_t turn = 0; turn < turns; ++turn) {
      Prompt prompt = builder.build(record, where, limits.with_response, turn);
      limits.require_known_ids(prompt, where);
      limits.require_player(record, where);
      found.lengths.push_back(static_cast<int64_t>(prompt.tokens.size()));
      found.overlong += limits.fits(prompt) ? 0 : 1;
      if (rewards) found.answers.look(*rewards, prompt, builder.where_answer(record, where));
      if (!config.data.domain_key.empty()) ++found.domains[prompt.domain];
      if (!check.first) check.first = std::move(prompt);
    }
  }
  std::sort(found.lengths.begin(), found.lengths.end());
  return found;
}

void look_at_rows(DataCheck& check, const Config& config, const RunPlan& plan, const TextTools& text) {
  const PromptStream::Limits limits{
      plan.lengths.max_prompt, plan.lengths.longest,
      !plan.generates,         plan.vocab_size,
      plan.media_token_ids,    plan.generates ? config.rollout.harness : std::vector<HarnessConfig>()};
  const Rows rows = read_rows(config.data.train);
  std::optional<RewardSet> rewards;
  if (plan.generates && !config.reward.functions.empty()) rewards.emplace(config.reward);
  const auto [lengths, overlong, answers, domains] = look_at(check, config, limits, rewards, text, rows);
  const auto looked_at = static_cast<int64_t>(lengths.size());
  check.first_record = rows.records.front().second;
  check.data = {
      {"rows", rows.rows},
      {"rows_are", rows.counted ? "counted" : "estimated"},
      {"looked_at", looked_at},
      {"sample", std::ssize(rows.records) == rows.rows ? "all rows" : "evenly spaced rows"},
      {"first_prompt", first_json(*check.first, rows.records.front().first)},
      {"lengths",
       {{"p50", quantile(lengths, 0.5)}, {"p95", quantile(lengths, 0.95)}, {"max", lengths.back()}}},
      {"max_prompt_tokens", limits.max_prompt_tokens},
      {"overlong", overlong},
      {"overlong_rule", config.data.overlong}};
  if (limits.with_response && config.data.train_on == "each")
    check.data["turns"] = looked_at * rows.rows / std::ssize(rows.records);
  if (rewards)
    check.data["answers"] = {
        {"looked_at", looked_at},
        {"unreadable", answers.unreadable.count},
        {"why", answers.unreadable.count > 0 ? answers.unreadable.why : answers.unmatched.why},
        {"unmatched", answers.unmatched.count}};
  if (!domains.empty()) check.data["domains"] = domains;
  judge(check, config, limits, overlong, looked_at, answers);
  warn_of_data(check, config, plan, answers);
}

/// Each line that a validation takes names a program. The only wrong one may be any of them, and a run would
/// end with it.
void look_for_players(const InputFile& file, const std::string& path, const Config& config) {
  const PromptStream::Limits limits{.harnesses = config.rollout.harness};
  const int64_t most = config.validation.max_prompts;
  for (const Line& line : sample_lines(file, kMostRows).lines) {
    if (most > 0 && (line.number == 0 || line.number > most)) continue;
    const std::string where = place_of(path, line);
    limits.require_player(parse_data_line(read_line(file, line), where), where);
  }
}

/// The first line of each held-out file is built, others are looked at for their programs; one that is only
/// generated for may lack a response.
void look_at_held_out(const Config& config, const RunPlan& plan, const TextTools& text) {
  const PromptBuilder builder(*text.tokenizer, text.chat_template(), prompt_options(config.data));
  for (size_t i = 0; i < config.validation.data.size(); ++i) {
    const ValidationSet& set = config.validation.data[i];
    const InputFile file(set.path);
    const std::string where = set.path + ":1";
    const Json record = parse_data_line(read_line(file, sample_lines(file, 1).lines.front()), where);
    if (plan.validation.sets.at(i).max_new > 0 && !config.rollout.harness.empty())
      look_for_players(file, set.path, config);
    const RewardConfig rewards = rewards_of(set, config);
    const Prompt prompt = builder.build(record, where, plan.validation.loss && rewards.functions.empty());
    if (!rewards.functions.empty())
      RewardSet(rewards).check_answer(prompt.answer, builder.where_answer(record, where), prompt.domain);
  }
}

std::string shown(const std::string& text) {
  return dump_json_line(text.size() <= kShownText ? text : text.substr(0, kShownText) + "...");
}

std::string shown_ids(const Json& ids) {
  Json some = Json::array();
  for (size_t i = 0; i < std::min(ids.size(), kShownIds); ++i) some.push_back(ids[i]);
  return dump_json_line(some) +
         (ids.size() > kShownIds ? fmt::format(" and {} more", ids.size() - kShownIds) : "");
}

/// Those of the first by name, with their rows.
std::string shown_domains(const Json& domains) {
  constexpr size_t kMost = 8;
  std::string some;
  size_t number = 0;
  for (const auto& [name, rows] : domains.items())
    if (number++ < kMost)
      some += fmt::format("{}{} {}", some.empty() ? "" : ", ", dump_json_line(name), rows.dump());
  return some + (number > kMost ? fmt::format(" and {} more", number - kMost) : "");
}

const char* overlong_text(const std::string& rule) {
  return rule == "drop"    ? "they are left out"
         : rule == "error" ? "one ends the run"
                           : "they are cut at the left";
}

}  // namespace

DataCheck check_data(const Config& config, const RunPlan& plan, const ModelConfig& facts) {
  DataCheck check;
  sound(check, "model.path", [&] { check_folder(config, facts); });
  TextTools text;
  if (!sound(check, "tokenizer.path", [&] { text = load_text_tools(config); })) return check;
  if (const std::string lost = lost_end_tokens_text(facts, text.tokenizer->eos_id()); !lost.empty())
    check.warnings.push_back(lost);
  compare_vocabularies(check, facts, *text.tokenizer);
  sound(check, "roles.teacher.path", [&] { require_same_vocabulary(config, *text.tokenizer); });
  sound(check, "data.train", [&] { look_at_rows(check, config, plan, text); });
  sound(check, "validation.data", [&] { look_at_held_out(config, plan, text); });
  return check;
}

std::string data_text(const Json& data) {
  if (data.is_null()) return "";
  const Json &first = data.at("first_prompt"), &lengths = data.at("lengths");
  const auto line = [](const char* name, const std::string& value, const std::string& more) {
    return fmt::format("  {:<26} {:<14} {}\n", name, value, more);
  };
  const auto number = [](const Json& value) { return std::to_string(value.get<int64_t>()); };
  std::string text = "data\n";
  text +=
      line("rows", number(data.at("rows")),
           data.at("rows_are") == "counted" ? "data.train" : "data.train, estimated from their mean length");
  text += line("looked at", number(data.at("looked_at")),
               data.at("sample").get<std::string>() + "; what follows speaks of these");
  text += line("prompt tokens", "p50 " + number(lengths.at("p50")),
               fmt::format("p95 {}, max {}; at most {} are wanted", number(lengths.at("p95")),
                           number(lengths.at("max")), number(data.at("max_prompt_tokens"))));
  text += line("overlong", number(data.at("overlong")),
               fmt::format("data.overlong = \"{}\": {}", data.at("overlong_rule").get<std::string>(),
                           overlong_text(data.at("overlong_rule"))));
  if (data.contains("turns"))
    text += line("turns", number(data.at("turns")), "each a sample: data.train_on = \"each\"");
  if (data.contains("answers")) {
    text += line("unreadable answers", number(data.at("answers").at("unreadable")), "by reward.functions");
    text +=
        line("unmatched answers", number(data.at("answers").at("unmatched")), "no response could be right");
  }
  if (data.contains("domains"))
    text += line("domains", std::to_string(data.at("domains").size()), shown_domains(data.at("domains")));
  text += line("first prompt", first.at("where").get<std::string>(), shown(first.at("text")));
  text += line("first prompt, ids", std::to_string(first.at("ids").size()), shown_ids(first.at("ids")));
  if (first.contains("response")) {
    text += line("its response", "", shown(first.at("response")));
    text += line("its response, ids", std::to_string(first.at("response_ids").size()),
                 shown_ids(first.at("response_ids")));
    if (const Json mask = first.value("response_mask", Json()); !mask.is_null())
      text += line("its trained ids", std::to_string(std::count(mask.begin(), mask.end(), Json(1))),
                   "turns of the assistant: data.train_on = \"all\"");
  }
  return text;
}

}  // namespace temper
