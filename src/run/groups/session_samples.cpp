#include "src/run/groups/session_samples.h"

#include <algorithm>
#include <iterator>
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
    const bool fails = reason != EndReason::done && reason != EndReason::limit;
    // A reward for what the policy has not said is none of its group; on_error = "zero" asks for one.
    const bool silent = result.samples.empty() && (!fails || reason == EndReason::no_request);
    note.excluded = (at_limit && on_limit == "exclude") || (fails && !note.reward) || silent;
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

/// The sessions of a prompt that goes on begin where they were; those that had ended are as they are.
bool SessionSamples::add(PromptWork& work, int64_t num_samples, bool after_stop) {
  if (is_whole(work)) return false;
  done_ = false;
  if (!p_.host) return true;
  const int64_t position = work.drawn.position;
  const std::vector<Trajectory> before = std::exchange(work.before.samples, {});
  Open& open = open_[position];
  open = {std::move(work), std::vector<std::vector<Trajectory>>(static_cast<size_t>(num_samples)), 0};
  for (const Trajectory& t : before) open.samples.at(static_cast<size_t>(t.sample)).push_back(t);
  for (size_t i = 0; i < open.samples.size(); ++i) {
    std::vector<Trajectory>& sample = open.samples[i];
    const bool goes_on = !sample.empty() && sample.front().response.finish == FinishReason::unfinished;
    if (!sample.empty() && !goes_on) continue;
    const std::string record = goes_on && sample.front().session ? sample.front().session->requests : "";
    sample.clear();
    ++open.left;
    const auto number = static_cast<int32_t>(i);
    of_session_.emplace(p_.host->start(open.work.drawn, number, record, after_stop),
                        std::pair{position, number});
  }
  return true;
}

template <class MakeTrajectories>
void SessionSamples::put_away(uint64_t number, std::vector<MadeGroup>& made, const MakeTrajectories& make) {
  const auto at = of_session_.extract(number);
  if (!at) return;
  const auto [position, sample] = at.mapped();
  Open& open = open_.at(position);
  std::vector<Trajectory>& all = open.samples[static_cast<size_t>(sample)];
  all = make(of_prompt(open.work));
  for (Trajectory& t : all) t.sample = sample;
  if (--open.left > 0) return;
  MadeGroup group{.group = {}, .record = open.work.drawn.record};
  for (std::vector<Trajectory>& of_sample : open.samples)
    std::move(of_sample.begin(), of_sample.end(), std::back_inserter(group.group.samples));
  made.push_back(std::move(group));
  open_.erase(position);
}

void SessionSamples::take_ended(std::vector<MadeGroup>& made) {
  for (const SessionHost::Ended& ended : p_.host->take_ended())
    put_away(ended.number, made, [&](const Trajectory& prompt) {
      return session_trajectories(prompt, ended, p_.host->on_limit());
    });
}

void SessionSamples::take_rested(std::vector<SessionHost::Rested> rested, std::vector<MadeGroup>& made) {
  for (SessionHost::Rested& one : rested)
    put_away(one.number, made, [&](Trajectory prompt) {
      prompt.session = SessionNote{.requests = std::move(one.record)};
      return std::vector{std::move(prompt)};
    });
}

/// What is under way is cut as it is; programs begin again another time, and go on where they were.
std::vector<MadeGroup> SessionSamples::cut_all(Ctx& c) {
  std::vector<MadeGroup> made;
  generation_.cut(c);
  if (p_.host) {
    take_rested(p_.host->suspend_all("the run stops"), made);
    take_ended(made);
  }
  done_ = true;
  return made;
}

std::vector<MadeGroup> SessionSamples::step(Ctx& c, bool cut) {
  note_progress();
  if (cut) return cut_all(c);
  std::vector<MadeGroup> made;
  if (p_.host) {
    take_ended(made);
    take_rested(p_.host->take_rested(of_session_.size()), made);
  }
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
