#include "src/run/verbs/check/session_trial.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/core/stopwatch.h"
#include "src/run/groups/session_host.h"
#include "src/run/host/model_host.h"
#include "src/run/plan/run_options.h"
#include "src/run/record/run_log.h"
#include "src/run/verbs/reward_trial.h"

namespace temper {
namespace {

constexpr size_t kShownText = 2000;  // of a prompt's new text
constexpr double kEndSeconds = 5;    // beyond the limit: for the end of the program
constexpr std::chrono::milliseconds kLook{20};

RolloutConfig bounded(RolloutConfig rollout) {
  rollout.server.port = 0;  // a run on this host may have it
  SessionLimitsConfig& limits = rollout.sessions;
  limits.max_turns = limits.max_turns > 0 ? std::min(limits.max_turns, kTrialTurns) : kTrialTurns;
  for (HarnessConfig& harness : rollout.harness) {
    harness.workers = harness.in_flight = 1;
    harness.retries = 0;
    harness.on_error = "exclude";
    harness.limit_seconds = std::min(harness.limit_seconds, kTrialSeconds);
  }
  return rollout;
}

/// A policy that says one thing, whatever it is asked, and what it heard.
class Script {
 public:
  Script(const Tokenizer& tokenizer, const GenerateOptions& sampling, std::string text)
      : tokenizer_(tokenizer), text_(std::move(text)), ids_(tokenizer.encode(text_, /*add_special=*/false)) {
    if (!sampling.stop_token_ids.empty()) end_ = sampling.stop_token_ids.front();
  }

  void answer(EngineDesk& desk) {
    for (auto& [number, request] : desk.take().fresh) {
      Response said = response(*request.own);
      note(request.prompt, said);
      DeskNews news;
      news.done.push_back({number, {std::move(said)}});
      desk.publish(desk.lane_of(number), std::move(news));
    }
  }
  const Json& turns() const { return turns_; }

 private:
  Response response(const GenerateOptions& own) const {
    Response r;
    r.tokens = ids_;
    r.text = text_;
    r.finish = FinishReason::stop;
    if (end_) r.tokens.push_back(*end_);
    if (const auto most = static_cast<size_t>(own.max_new_tokens); r.tokens.size() > most) {
      r.tokens.resize(most);
      r.text = tokenizer_.decode(r.tokens, /*skip_special=*/true);
      r.finish = FinishReason::length;
    }
    r.mask.assign(r.tokens.size(), 1);
    r.logprobs.assign(r.tokens.size(), 0);
    r.versions = {{0, static_cast<int32_t>(r.tokens.size())}};
    return r;
  }

  /// A turn goes on from the longest one that its prompt begins with.
  void note(const std::vector<int32_t>& prompt, const Response& said) {
    Json from;
    size_t known = 0;
    for (size_t turn = 0; turn < ids_of_.size(); ++turn) {
      const std::vector<int32_t>& before = ids_of_[turn];
      const bool begins = before.size() > known && before.size() <= prompt.size() &&
                          std::equal(before.begin(), before.end(), prompt.begin());
      if (begins) known = before.size(), from = turn + 1;
    }
    const std::string text = tokenizer_.decode(std::span(prompt).subspan(known), /*skip_special=*/false);
    turns_.push_back({{"prompt_tokens", prompt.size()},
                      {"goes_on_from", std::move(from)},
                      {"new_text", text.substr(0, kShownText) + (text.size() > kShownText ? "..." : "")},
                      {"said", said.text},
                      {"said_tokens", said.tokens.size()}});
    ids_of_.push_back(prompt);
    ids_of_.back().insert(ids_of_.back().end(), said.tokens.begin(), said.tokens.end());
  }

  const Tokenizer& tokenizer_;
  const std::string text_;
  const std::vector<int32_t> ids_;
  std::optional<int32_t> end_;
  std::vector<std::vector<int32_t>> ids_of_;  // of each turn: its prompt and what was said
  Json turns_ = Json::array();
};

SessionHost::Ended play(SessionHost& host, Script& script, const DrawnPrompt& line) {
  const uint64_t number = host.start(line, /*sample=*/0);
  const Stopwatch watch;
  while (watch.seconds() < kTrialSeconds + kEndSeconds) {
    script.answer(host.desk());
    std::vector<SessionHost::Ended> ended = host.take_ended();
    if (!ended.empty()) return std::move(ended.front());
    host.wait(kLook);
  }
  host.stop_all("its time in `temper check` is over");
  return {.number = number, .result = {.end = {.reason = EndReason::late}}};
}

std::string indented(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 5) text.insert(at + 1, "    ");
  return "    " + text + "\n";
}

}  // namespace

Json try_session(const Config& config, const RunPlan& plan, const ModelConfig& model, const Prompt& first,
                 const Json& record) {
  Helpers helpers;
  start_log("", config.log.level, 0, /*on_stderr=*/true);
  const TextTools text = load_text_tools(config);
  const RolloutConfig rollout = bounded(config.rollout);
  const GenerateOptions sampling = rollout_options(config, plan, model, *text.tokenizer);
  const DrawnPrompt line{.prompt = first, .record = std::make_shared<const Json>(record)};
  Script script(*text.tokenizer, sampling, trial_response(first));
  const Stopwatch watch;
  SessionHost host({.rollout = rollout,
                    .chat_arguments = config.data.chat_arguments,
                    .tokenizer = *text.tokenizer,
                    .chat = *text.chat_template(),
                    .helpers = helpers,
                    .sampling = sampling,
                    .context_tokens = plan.lengths.longest});
  SessionHost::Ended ended = play(host, script, line);
  SessionResult& result = ended.result;
  if (result.end.reason == EndReason::done && !result.end.reward && config.reward.functions.empty())
    result.end.reason = EndReason::no_reward;
  int64_t trained = 0;
  for (const SessionSample& sample : result.samples)
    for (const uint8_t counted : sample.response.mask) trained += counted;
  Json parts = Json::object();
  for (const auto& [name, value] : result.end.parts) parts[name] = value;
  return {{"environment", ended.harness ? ended.harness->name : ""},
          {"end_reason", end_reason_name(result.end.reason)},
          {"reward", result.end.reward ? Json(*result.end.reward) : Json()},
          {"parts", std::move(parts)},
          {"seconds", watch.seconds()},
          {"samples", result.samples.size()},
          {"trained_tokens", trained},
          {"turns", script.turns()}};
}

std::string session_text(const Json& trial) {
  std::string text =
      fmt::format("a session of the first line, in which the policy says the line's answer, in {:.2f} s\n",
                  trial.at("seconds").get<double>());
  size_t number = 0;
  for (const Json& turn : trial.at("turns")) {
    const Json& from = turn.at("goes_on_from");
    text += fmt::format("  turn {}: a prompt of {} tokens, {}\n", ++number, turn.at("prompt_tokens").dump(),
                        from.is_null() ? "rendered whole" : fmt::format("behind turn {}", from.dump()));
    text += indented(turn.at("new_text").get<std::string>());
    text += fmt::format("  said: {} tokens\n", turn.at("said_tokens").dump());
    text += indented(turn.at("said").get<std::string>());
  }
  for (const char* key : {"end_reason", "reward", "parts", "samples", "trained_tokens"})
    text += fmt::format("  {:<26} {}\n", key, dump_json_line(trial.at(key)));
  return text;
}

std::string session_warning(const Json& trial) {
  const std::string reason = trial.at("end_reason");
  if (reason == end_reason_name(EndReason::no_reward))
    return "the session of the first line ended without a reward: such sessions train nothing; let the "
           "program say {\"reward\": NUMBER} in its last line or post it to /reward, or name functions in "
           "reward.functions";
  if (reason != "done")
    return fmt::format("the session of the first line ended by \"{}\" (`temper help agents`)", reason);
  size_t whole = 0;
  for (const Json& turn : trial.at("turns")) whole += turn.at("goes_on_from").is_null();
  if (whole < 2) return "";
  return fmt::format(
      "{} of {} turns of the first line's session do not go on from another: each begins a sample of its own",
      whole, trial.at("turns").size());
}

}  // namespace temper
