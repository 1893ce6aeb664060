#include "src/run/roles/rollout_step.h"

#include <algorithm>

#include "src/core/log.h"
#include "src/core/process/stop_signal.h"
#include "src/run/plan/run_options.h"

namespace temper {

std::unique_ptr<SessionHost> open_sessions(const RoleParts& p) {
  const Config& config = p.task.config();
  if (!plays(config) || !p.model_share.team.leads()) return nullptr;
  return std::make_unique<SessionHost>(
      SessionHost::Parts{.rollout = config.rollout,
                         .chat_arguments = config.data.chat_arguments,
                         .tokenizer = *p.tokenizer,
                         .chat = *p.chat,
                         .helpers = *p.task.helpers,
                         .sampling = rollout_options(config, p.task.plan, p.model().config(), *p.tokenizer),
                         .context_tokens = p.task.plan.lengths.longest,
                         .team = p.portion.index});
}

RolloutStep::RolloutStep(const RoleParts& parts, const GroupMaker::Parts& maker, const OpenStep& open,
                         int64_t step, int64_t version)
    : p_(parts),
      maker_(maker),
      step_(step),
      open_(open.step == step ? open : OpenStep{}),
      options_(rollout_options(p_.task.config(), p_.task.plan, p_.model().config(), maker_.tokenizer)) {
  options_.version = version;
  const int64_t cut = p_.task.config().rollout.tokens_per_step;
  if (step < p_.lead.last_step) options_.tokens_per_call = cut;
  if (cut > 0) note_.sums["rollout/prompts_unfinished"] = 0;
  add_work(note_, {}, 0, 0);  // there may be none
}

/// What earlier steps left, with the data's prompts.
std::vector<PromptWork> RolloutStep::work_left(LeftOver before) const {
  std::vector<PromptWork> work;
  for (Group& g : before.groups)
    if (auto known = go_on(*p_.prompts, std::move(g), p_.task.config().checkpoint.accept_changes)) {
      const auto home = before.homes.find(known->drawn.position);
      if (home != before.homes.end()) known->home = home->second;
      work.push_back(*std::move(known));
    }
  return work;
}

LeftOver RolloutStep::run(LeftOver before) {
  const int64_t begun = std::ssize(before.groups);
  std::vector<PromptWork> work = work_left(std::move(before));
  const int64_t lost = begun - std::ssize(work);
  if (maker_.sessions) maker_.sessions->begin_step(options_.tokens_per_call);
  if (lost > 0 && p_.portion.index == 0 && maker_.team.leads())
    log::warn(
        "step {}: new prompts take the place of {} unfinished ones, which the data no longer have "
        "where they were",
        step_, lost);
  int64_t fresh = lost + (goes_on() ? 0 : p_.task.plan.batch.prompts_per_step);
  RoundResult all;
  int64_t owed = open_.owed;
  for (int64_t round = open_.round; fresh > 0 || owed > 0 || !work.empty(); ++round) {
    if (replacing_rounds() > 0) note_.sums["rollout/rounds"] = p_.portion.index == 0 ? round : 0;
    for (DrawnPrompt& p : p_.prompts->next(fresh)) work.push_back({std::move(p)});
    all = follow(generate(std::move(work)), std::exchange(owed, 0), std::move(all));
    work.clear();
    if (all.cut) {
      note_.cut = true;
      for (const char* name :
           {"rollout/rounds", "rollout/prompts_unfinished"})  // said when the step is whole
        if (const auto sum = note_.sums.find(name); sum != note_.sums.end()) sum->second = 0;
      note_.round = round;
      note_.owed = p_.portion.index == 0 ? all.replaced : 0;
      break;
    }
    fresh = round < replacing_rounds() ? all.replaced : 0;
  }
  if (all.replaced > 0 && !all.cut && p_.portion.index == 0 && maker_.team.leads())
    log::warn(
        "step {}: {} prompts whose samples all earned the same reward were not replaced after {} rounds",
        step_, all.replaced, replacing_rounds());
  was_cut_ = all.cut;
  close();
  std::sort(all.left.groups.begin(), all.left.groups.end(), [](const Group& a, const Group& b) {
    return a.samples.front().data_position < b.samples.front().data_position;
  });
  return std::move(all.left);
}

/// What is known of all ranks after a round, where this rank had `mine` of it and `owed` prompts were to be
/// replaced before.
RoundResult RolloutStep::follow(const RoundResult& mine, int64_t owed, RoundResult all) {
  all.replaced = owed;
  all.cut = mine.cut;
  if (maker_.team.leads() && shares()) share(mine, all);
  if (maker_.team.alone()) return all;
  RoundResult led;
  add_round(
      maker_.team.from_leader([&] { return round_to_bytes(all); }, "result of a round, as the leader has it"),
      led);
  return led;
}

void RolloutStep::share(const RoundResult& mine, RoundResult& all) {
  const TraceSpan span(p_.trace, step_, "rollout", "wait for the other rollout ranks");
  for (const std::string& bytes : p_.groups.gather(round_to_bytes(mine))) add_round(bytes, all);
}

RoundResult RolloutStep::generate(std::vector<PromptWork> work) {
  const BatchPlan& batch = p_.task.plan.batch;
  const std::vector<int64_t> rank_of = deal(work, {p_.portion.count, batch.samples_per_prompt,
                                                   p_.task.plan.lengths.max_new, options_.tokens_per_call});
  // A step that a stop cut goes on from here, with the weights that it has now.
  GroupMaker maker(maker_, options_, [this] {
    p_.end.look();
    return p_.end.cuts(options_.version);
  });
  for (size_t i = 0; i < work.size(); ++i)
    if (rank_of[i] == p_.portion.index) maker.add(std::move(work[i]), batch.samples_per_prompt, goes_on());
  RoundResult result;
  while (!maker.done()) {
    GroupMaker::Made made = maker.next();
    for (Group& g : made.scored) send(std::move(g), result);
    for (Group& g : made.left) put_off(std::move(g), result);
  }
  result.cut = maker.was_cut();
  trace_rewards(maker.scoring_times());
  add_work(note_, maker.counters(), maker.generating_seconds(), maker.rewarding_seconds());
  return result;
}

void RolloutStep::trace_rewards(const std::vector<RewardWorkers::Scored>& times) const {
  if (!p_.trace.on(step_)) return;
  for (const RewardWorkers::Scored& scored : times)
    p_.trace.spans(step_, reward_track(scored.thread),
                   {{fmt::format("reward of prompt {}, sample {}", scored.data_position, scored.sample),
                     p_.trace.at(scored.begin), p_.trace.at(scored.end)}});
}

void RolloutStep::put_off(Group group, RoundResult& result) {
  p_.groups.send_unfinished(step_, group);
  if (p_.task.config().rollout.tokens_per_step > 0) note_.sums["rollout/prompts_unfinished"] += 1;
  if (maker_.plays) result.left.homes[position_of(group)] = p_.portion.index;
  result.left.groups.push_back(std::move(group));
}

/// By how they ended.
void RolloutStep::count_sessions(const Group& scored) {
  for (const Trajectory& t : scored.samples)
    if (t.session && !t.is_fork()) note_.sums["rollout/sessions_" + t.session->end_reason] += 1;
}

void RolloutStep::send(Group scored, RoundResult& result) {
  count_sessions(scored);
  if (replacing_rounds() == 0 || !is_uniform(scored)) return p_.groups.send_sampled(step_, std::move(scored));
  ++result.replaced;
  note_.replaced[position_of(scored)] = shared_reward(scored);
}

void RolloutStep::close() {
  note_.maxima.merge(maker_.team.largest(p_.memory.metrics("generate"), "memory of a team, max"));
  if (!maker_.team.leads()) return;
  note_.sums.merge(maker_.rewards.end_step());
  if (maker_.sessions) {
    for (const std::string_view reason : kEndReasons)
      note_.sums.try_emplace(fmt::format("rollout/sessions_{}", reason), 0.0);
    note_.sums.merge(maker_.sessions->end_step());
  }
  note_.data_position = p_.prompts->position();
  note_.stop_requested = stop_requested();
  p_.groups.close_sampled(step_, std::move(note_));
}

}  // namespace temper
