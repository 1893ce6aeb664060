#include "src/run/groups/session_host.h"

#include <algorithm>
#include <thread>

#include "src/core/digest/hash.h"
#include "src/core/log.h"

namespace temper {
namespace {

/// The seed that a program is told: of its prompt and sample.
uint64_t program_seed(const SessionSetup& setup) {
  const std::string key = fmt::format("{} {} {}", setup.seed, setup.data_position, setup.sample);
  return std::stoull(digest_hex(key.data(), std::ssize(key)).substr(0, 13), nullptr,
                     16);  // a double holds it
}

SessionService::Options service_options(const SessionHost::Parts& p) {
  SessionService::Options o;
  const ServerConfig& server = p.rollout.server;
  o.http.address = server.address;
  o.http.port = static_cast<int>(server.port == 0 ? 0 : server.port + p.team);
  o.http.port_key = "rollout.server.port";
  o.http.max_body_bytes = server.max_body_bytes;
  o.rules.context_tokens = p.context_tokens;
  o.rules.defaults = p.sampling;
  for (const HarnessConfig& harness : p.rollout.harness) {
    // A session may have several connections: agents beside agents, retries, a stream that is read slowly.
    const int64_t sessions = harness.in_flight * (harness.service() ? harness.workers : 1);
    o.http.max_connections = static_cast<int>(std::max<int64_t>(o.http.max_connections, 4 * sessions));
    o.rules.aliases.insert(harness.aliases.begin(), harness.aliases.end());
    o.rules.doors.ignore.insert(harness.ignore.begin(), harness.ignore.end());
  }
  o.chat_arguments = p.chat_arguments;
  return o;
}

}  // namespace

SessionHost::SessionHost(const Parts& parts)
    : p_(parts), desk_(static_cast<size_t>(p_.rollout.server.threads)) {
  service_ = std::make_unique<SessionService>(service_options(p_), p_.tokenizer, p_.chat, desk_);
  for (HarnessConfig config : p_.rollout.harness) {
    const double seconds = p_.rollout.sessions.session_seconds;
    if (seconds > 0) config.limit_seconds = std::min(config.limit_seconds, seconds);
    harnesses_.push_back(std::make_unique<Harness>(p_.helpers, config, [this] { desk_.wake(); }));
  }
  for (const std::string& kind : service_->kinds_without_cut())
    log::warn("the chat template has no cut before new messages of the kind \"{}\": their turns fork", kind);
}

SessionHost::~SessionHost() {
  harnesses_.clear();  // their threads wake the desk
}

void SessionHost::begin_step(int64_t tokens) { service_->begin_step(tokens); }

/// One that rests goes on: it is asked for again.
std::optional<uint64_t> SessionHost::go_on(const Sample& sample) {
  const auto rested = resting_.extract(sample);
  if (!rested) return std::nullopt;
  const uint64_t number = rested.mapped();
  if (auto ended = unwanted_.extract(number)) wanted_.push_back(std::move(ended.mapped()));
  for (auto& [session, play] : plays_)
    if (play.number == number) {
      play.rests = false;
      harnesses_[play.harness]->go_on(session);
    }
  return number;
}

uint64_t SessionHost::start(const DrawnPrompt& prompt, int32_t sample, const std::string& record,
                            bool after_stop) {
  if (const auto number = go_on({prompt.position, sample})) return *number;
  const SessionLimitsConfig& limits = p_.rollout.sessions;
  const int64_t turn_tokens =
      limits.max_turn_tokens > 0 ? limits.max_turn_tokens : p_.sampling.max_new_tokens;
  Play play{.number = next_++,
            .harness = chosen_harness(p_.rollout.harness, *prompt.record,
                                      fmt::format("data position {}", prompt.position)),
            .setup = {.seed = p_.sampling.seed,
                      .data_position = prompt.position,
                      .sample = sample,
                      .line_prompt = prompt.prompt.tokens,
                      .stop_token_ids = p_.sampling.stop_token_ids,
                      .num_ids = static_cast<int32_t>(p_.sampling.num_sampleable),
                      .limits = {.turns = limits.max_turns,
                                 .turn_tokens = turn_tokens,
                                 .session_tokens = limits.max_session_tokens,
                                 .context_tokens = p_.context_tokens}},
            .record = prompt.record};
  const uint64_t number = play.number;
  begin(std::move(play), record, after_stop);
  return number;
}

void SessionHost::begin(Play play, const std::string& record, bool after_stop) {
  const SessionAccess access = service_->open(play.setup, record, after_stop);
  Harness& harness = *harnesses_[play.harness];
  HarnessStart start{.id = std::to_string(access.number),
                     .record = *play.record,
                     .seed = program_seed(play.setup),
                     .base_url = access.base_url,
                     .anthropic_base_url = access.anthropic_base_url,
                     .api_key = access.key,
                     .reward_key = access.reward_key};
  if (play.rests) service_->rest(access.number);
  plays_.emplace(access.number, std::move(play));
  harness.start(access.number, std::move(start));
}

void SessionHost::hear(Harness& harness) {
  for (HarnessTurn& turn : harness.take_turns())
    service_->ask(turn.session, std::move(turn.messages),
                  [&, session = turn.session, number = turn.turn](const PipeAnswer& answer) {
                    if (answer.at_limit) {  // no failure of the program
                      harness.stop(session, answer.refused);
                      return service_->end(session, {.reason = EndReason::limit});
                    }
                    if (!answer.refused.empty()) return harness.refuse(session, answer.refused);
                    Json told = answer.turn;
                    told["turn"] = number;
                    harness.answer(session, std::move(told));
                  });
  for (HarnessEnd& end : harness.take_ended()) {
    const auto play = plays_.find(end.session);
    if (play == plays_.end()) continue;
    service_->end(end.session, std::move(end.end));
    if (!end.again) continue;
    Play again = std::move(plays_.extract(play).mapped());  // what came of the failed one is dropped
    begin(std::move(again));
  }
}

std::vector<SessionHost::Ended> SessionHost::take_ended() {
  for (const auto& harness : harnesses_) hear(*harness);
  take_results();
  return std::exchange(wanted_, {});
}

void SessionHost::take_results() {
  for (SessionResult& result : service_->take_ended()) {
    const auto play = plays_.extract(result.number);
    if (!play) continue;
    const uint64_t number = play.mapped().number;
    Ended one{number, std::move(result), &p_.rollout.harness[play.mapped().harness]};
    if (play.mapped().rests)
      unwanted_.emplace(number, std::move(one));
    else
      wanted_.push_back(std::move(one));
  }
}

std::vector<SessionHost::Rested> SessionHost::hear_rests() {
  std::vector<Rested> rested;
  for (SessionRest& rest : service_->take_rests()) {
    const auto play = plays_.find(rest.number);
    if (play == plays_.end()) continue;
    Play& p = play->second;
    p.rests = true;
    resting_.emplace(Sample(p.setup.data_position, p.setup.sample), p.number);
    harnesses_[p.harness]->pause(rest.number);
    rested.push_back({p.number, std::move(rest.record)});
  }
  return rested;
}

std::vector<SessionHost::Rested> SessionHost::take_rested(size_t left) {
  std::vector<Rested> rested = hear_rests();
  std::vector<uint64_t> blocked;
  for (const auto& harness : harnesses_)
    for (const uint64_t session : harness->blocked()) {
      const auto play = plays_.find(session);
      if (play != plays_.end() && !play->second.rests) blocked.push_back(session);
    }
  if (blocked.size() + rested.size() == left && !resting_.empty())
    for (const uint64_t session : blocked) service_->rest(session);
  return rested;
}

std::vector<SessionHost::Rested> SessionHost::suspend_all(const std::string& why) {
  constexpr std::chrono::seconds kPatience(60);
  constexpr std::chrono::milliseconds kLook(1);
  for (const auto& [session, play] : plays_) {
    harnesses_[play.harness]->stop(session, why);
    service_->suspend(session);
  }
  std::map<uint64_t, std::string> records;
  const auto begin = std::chrono::steady_clock::now();
  while (records.size() < plays_.size()) {
    for (SessionRest& rest : service_->take_rests()) records[rest.number] = std::move(rest.record);
    take_results();  // of those that had ended already
    CHECK(std::chrono::steady_clock::now() - begin < kPatience, "the records of {} of {} sessions came",
          records.size(), plays_.size());
    std::this_thread::sleep_for(kLook);
  }
  std::vector<Rested> suspended;
  for (auto& [session, record] : records) suspended.push_back({plays_.at(session).number, std::move(record)});
  plays_.clear();
  resting_.clear();
  return suspended;
}

void SessionHost::stop_all(const std::string& why) {
  for (const auto& [session, play] : plays_) {
    harnesses_[play.harness]->stop(session, why);
    service_->end(session, {});
  }
  plays_.clear();
  resting_.clear();
}

std::map<std::string, double> SessionHost::end_step() {
  std::map<std::string, double> sums = service_->take_counts();
  for (const auto& harness : harnesses_) {
    const HarnessCounts counts = harness->end_step();
    sums["rollout/session_retries"] += static_cast<double>(counts.retries);
    sums["rollout/program_restarts"] += static_cast<double>(counts.restarts);
    sums["rollout/sessions_waited_s"] += counts.waited_seconds;
  }
  return sums;
}

}  // namespace temper
