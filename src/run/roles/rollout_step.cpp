#include "src/run/roles/rollout_step.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "src/core/process/progress.h"
#include "src/core/process/stop_signal.h"
#include "src/run/plan/run_options.h"

namespace temper {

RolloutStep::RolloutStep(const RolloutParts& parts, const OpenStep& open, int64_t step, int64_t version)
    : p_(parts),
      step_(step),
      open_(open.step == step ? open : OpenStep{}),
      options_(rollout_options(p_.config, p_.plan, p_.model.config(), p_.tokenizer)) {
  options_.version = version;
  const int64_t cut = p_.config.rollout.tokens_per_step;
  if (step < p_.lead.last_step) options_.tokens_per_call = cut;
  if (cut > 0) note_.sums["rollout/prompts_unfinished"] = 0;
  add_work(note_, {}, 0, 0);  // there may be none
}

std::vector<Group> RolloutStep::run(std::vector<Group> before) {
  std::vector<PromptWork> work;
  for (Group& g : before) work.push_back(go_on(p_.prompts, std::move(g)));
  int64_t fresh = goes_on() ? 0 : p_.plan.batch.prompts_per_step;
  RoundResult all;
  int64_t owed = open_.owed;
  for (int64_t round = open_.round; fresh > 0 || owed > 0 || !work.empty(); ++round) {
    if (replacing_rounds() > 0) note_.sums["rollout/rounds"] = p_.share.index == 0 ? round : 0;
    for (DrawnPrompt& p : p_.prompts.next(fresh)) work.push_back({std::move(p)});
    all = follow(generate(work), std::exchange(owed, 0), std::move(all));
    work.clear();
    if (all.cut) {
      note_.cut = true;
      if (replacing_rounds() > 0) note_.sums["rollout/rounds"] = 0;  // said when the step is whole
      note_.round = round;
      note_.owed = p_.share.index == 0 ? all.replaced : 0;
      break;
    }
    fresh = round < replacing_rounds() ? all.replaced : 0;
  }
  if (all.replaced > 0 && !all.cut && p_.share.index == 0 && p_.team.leads())
    spdlog::warn(
        "step {}: {} prompts whose samples all earned the same reward were not replaced after {} rounds",
        step_, all.replaced, replacing_rounds());
  was_cut_ = all.cut;
  close();
  std::sort(all.unfinished.begin(), all.unfinished.end(), [](const Group& a, const Group& b) {
    return a.samples.front().data_position < b.samples.front().data_position;
  });
  return std::move(all.unfinished);
}

/// What is known of all ranks after a round, where this rank had `mine` of it and `owed` prompts were to be
/// replaced before.
RoundResult RolloutStep::follow(const RoundResult& mine, int64_t owed, RoundResult all) {
  all.replaced = owed;
  all.cut = mine.cut;
  if (p_.team.leads() && shares()) share(mine, all);
  if (p_.team.alone()) return all;
  RoundResult led;
  add_round(p_.team.share([&] { return round_to_bytes(all); }, "result of a round, as the leader has it"),
            led);
  return led;
}

void RolloutStep::share(const RoundResult& mine, RoundResult& all) {
  const TraceSpan span(p_.trace, step_, "rollout", "wait for the other rollout ranks");
  for (const std::string& bytes : p_.groups.share(round_to_bytes(mine))) add_round(bytes, all);
}

RoundResult RolloutStep::generate(const std::vector<PromptWork>& work) {
  const BatchPlan& batch = p_.plan.batch;
  const std::vector<int64_t> rank_of = deal(
      work, {p_.share.count, batch.samples_per_prompt, p_.plan.max_new_tokens, options_.tokens_per_call});
  std::vector<const PromptWork*> mine;
  std::vector<Request> requests;
  std::optional<RewardWorkers> workers;
  if (p_.team.leads()) workers.emplace(p_.rewards);
  for (size_t i = 0; i < work.size(); ++i) {
    if (rank_of[i] != p_.share.index) continue;
    if (is_whole(work[i])) {
      if (workers) workers->submit(work[i].before, work[i].drawn.record);
      continue;
    }
    mine.push_back(&work[i]);
    requests.push_back(to_request(work[i], batch.samples_per_prompt));
    requests.back().after_stop = goes_on();
  }
  RoundResult result;
  expect_work(static_cast<int64_t>(requests.size()));
  const Stopwatch generating;
  Generation generation(p_.engine, options_, &p_.tokenizer);
  for (Request& request : requests) generation.add(std::move(request));
  while (!generation.done()) {
    result.cut = p_.team.agree([this] { return is_cut(); }, "whether the step is cut, as the leader says");
    for (Generation::Finished& f : result.cut ? generation.cut(p_.ctx) : generation.step(p_.ctx)) {
      note_work(1, 0);
      if (workers)
        take(to_group(*mine[f.request], std::move(f.responses)), *mine[f.request], *workers, result);
    }
  }
  const double seconds = generating.seconds();
  if (workers) send(workers->collect([this] { return is_cut(); }), result);
  if (workers)
    for (Group& g : workers->take_unscored()) {
      result.cut = true;
      put_off(std::move(g), result);
    }
  add_work(note_, generation.counters(), seconds, generating.seconds() - seconds);
  return result;
}

void RolloutStep::take(Group group, const PromptWork& work, RewardWorkers& workers, RoundResult& result) {
  if (is_finished(group))
    workers.submit(std::move(group), work.drawn.record);
  else
    put_off(std::move(group), result);
  send(workers.take_finished(), result);
}

/// The run ends: the step goes on from here, with the weights it has now. One with older weights is made
/// whole where responses take several steps, which are short: a stop must not change what a step has of a
/// response.
bool RolloutStep::is_cut() {
  p_.end.look();
  return p_.plan.steps_of_longest_response > 1 ? p_.end.after() == options_.version
                                               : p_.end.cuts(options_.version);
}

void RolloutStep::put_off(Group group, RoundResult& result) {
  p_.groups.send_unfinished(step_, group);
  if (p_.config.rollout.tokens_per_step > 0) note_.sums["rollout/prompts_unfinished"] += 1;
  result.unfinished.push_back(std::move(group));
}

void RolloutStep::send(std::vector<Group> scored, RoundResult& result) {
  for (Group& g : scored) {
    if (replacing_rounds() == 0 || !is_uniform(g)) {
      p_.groups.send_sampled(step_, std::move(g));
      continue;
    }
    ++result.replaced;
    note_.replaced[g.samples.front().data_position] = shared_reward(g);
  }
}

void RolloutStep::close() {
  note_.maxima.merge(p_.team.largest(p_.memory.metrics("generate"), "memory of a team, max"));
  if (!p_.team.leads()) return;
  note_.sums.merge(p_.rewards.end_step());
  note_.data_position = p_.prompts.position();
  note_.stop_requested = stop_requested();
  p_.groups.close_sampled(step_, std::move(note_));
}

}  // namespace temper
