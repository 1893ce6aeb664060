#include "src/run/groups/session_samples.h"

#include <algorithm>
#include <tuple>

#include "src/agents/service/asked_bytes.h"
#include "src/core/process/progress.h"

namespace temper {
namespace {

constexpr std::chrono::milliseconds kIdle{20};  // between looks at stops and programs when nothing is asked

Trajectory of_prompt(const PromptWork& work) {
  Trajectory t;
  t.data_position = work.drawn.position;
  t.prompt_tokens = work.drawn.prompt.tokens;
  t.prompt = work.drawn.prompt.text;
  t.answer = work.drawn.prompt.answer;
  t.domain = work.drawn.prompt.domain;
  return t;
}

}  // namespace

std::vector<Trajectory> session_trajectories(const Trajectory& prompt, const SessionHost::Ended& ended,
                                             const std::string& on_limit) {
  const SessionResult& result = ended.result;
  const EndReason reason = result.end.reason;
  const bool at_limit = reason == EndReason::limit || reason == EndReason::late;
  std::vector<Trajectory> all;
  for (const SessionSample& sample : result.samples) {
    Trajectory t = prompt;
    t.prompt_tokens = sample.prompt_tokens;
    t.response = sample.response;
    t.session = SessionNote{.fork = sample.fork, .turns = sample.turns};
    if (at_limit && on_limit == "mask") std::fill(t.response.mask.begin(), t.response.mask.end(), uint8_t{0});
    all.push_back(std::move(t));
  }
  if (all.empty()) {
    all.push_back(prompt);
    all.back().session = SessionNote{};
    all.back().response.finish = FinishReason::stop;
  }
  for (Trajectory& t : all) {
    SessionNote& note = *t.session;
    note.environment = ended.harness->name;
    note.end_reason = end_reason_name(reason);
    note.reward = result.end.reward;
    note.parts = result.end.parts;
    const bool failed = reason != EndReason::done && reason != EndReason::limit && !note.reward;
    note.excluded = (at_limit && on_limit == "exclude") || failed;
  }
  all.front().session->requests = dump_json_line(result.requests);
  return all;
}

SessionSamples::SessionSamples(const Parts& parts)
    : p_(parts),
      silent_(1),
      generation_(p_.engine, p_.options, &p_.tokenizer, p_.host ? p_.host->desk() : silent_) {
  silent_.listen([](size_t, const DeskNews&) {});
}

SessionSamples::~SessionSamples() {
  if (p_.host && !of_session_.empty()) p_.host->stop_all("the step has ended");
}

bool SessionSamples::add(PromptWork& work, int64_t num_samples, bool) {
  done_ = false;
  if (!p_.host) return true;
  const int64_t position = work.drawn.position;
  for (int32_t sample = 0; sample < num_samples; ++sample)
    of_session_.emplace(p_.host->start(work.drawn, sample), std::pair{position, sample});
  const auto n = static_cast<size_t>(num_samples);
  open_.emplace(position, Open{std::move(work), std::vector<std::optional<SessionHost::Ended>>(n), n});
  return true;
}

void SessionSamples::take_ended(std::vector<MadeGroup>& made) {
  for (SessionHost::Ended& ended : p_.host->take_ended()) {
    const auto at = of_session_.extract(ended.number);
    if (!at) continue;
    const auto [position, sample] = at.mapped();
    Open& open = open_.at(position);
    open.sessions[static_cast<size_t>(sample)] = std::move(ended);
    if (--open.left > 0) continue;
    MadeGroup group{.group = {}, .record = open.work.drawn.record};
    const Trajectory prompt = of_prompt(open.work);
    for (size_t i = 0; i < open.sessions.size(); ++i)
      for (Trajectory& t : session_trajectories(prompt, *open.sessions[i], p_.host->on_limit())) {
        t.sample = static_cast<int32_t>(i);
        group.group.samples.push_back(std::move(t));
      }
    made.push_back(std::move(group));
    open_.erase(position);
  }
}

/// Sessions that have not ended begin again another time: prompts without responses.
std::vector<MadeGroup> SessionSamples::cut_all(Ctx& c) {
  std::vector<MadeGroup> made;
  if (p_.host) p_.host->stop_all("the run stops");
  generation_.cut(c);
  for (auto& [position, open] : open_) {
    std::vector<Response> none(open.sessions.size());
    open.work.before = {};
    made.push_back({to_group(open.work, std::move(none)), open.work.drawn.record});
  }
  open_.clear();
  of_session_.clear();
  done_ = true;
  return made;
}

std::vector<MadeGroup> SessionSamples::step(Ctx& c, bool cut) {
  note_progress();
  if (cut) return cut_all(c);
  std::vector<MadeGroup> made;
  if (p_.host) take_ended(made);
  bool last = open_.empty();
  EngineDesk::Asked asked;
  if (p_.host) asked = p_.host->desk().take();
  if (!p_.team.alone())
    std::tie(asked, last) =
        asked_from_bytes(p_.team.from_leader([&] { return asked_to_bytes(asked, last); },
                                             "what sessions ask of the engine, as the leader has it"));
  const bool nothing = asked.empty();
  generation_.take(std::move(asked));
  if (!generation_.idle())
    generation_.step(c);
  else if (p_.host && nothing && !last)
    p_.host->wait(kIdle);
  done_ = last;
  return made;
}

}  // namespace temper
