#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

#include "src/rl/registry.h"
#include "src/rl/rollout_metrics.h"
#include "src/run/roles/role.h"

namespace temper {
namespace {

/// All trajectories of the step in order of group and sample.
std::vector<const Trajectory*> in_order(std::span<const Group> groups) {
  std::vector<const Trajectory*> all;
  for (const Group& g : groups)
    for (const Trajectory& t : g.samples) all.push_back(&t);
  return all;
}

/// Tokens, and those of other weights than `version`.
struct TokenShare {
  int64_t all = 0, other = 0;
};
TokenShare off_policy_tokens(const Trajectory& t, int64_t version) {
  TokenShare share;
  for (const auto& [sampled_with, tokens] : t.response.versions) {
    share.all += tokens;
    if (sampled_with != version) share.other += tokens;
  }
  return share;
}

/// Of the weights that any token of the step was generated with; `current` when nothing is known.
int64_t oldest_version(std::span<const Trajectory* const> all, int64_t current) {
  int64_t oldest = current;
  for (const Trajectory* t : all)
    for (const auto& [version, tokens] : t->response.versions) oldest = std::min(oldest, version);
  return oldest;
}

TrainerOptions trainer_options(const Services& s) {
  return {.pass = pass_options(s.config(), s.plan),
          .optimizer = s.config().optimizer,
          .total_updates = s.plan.batch.updates_total};
}

}  // namespace

TrainRole::TrainRole(Services& services, bool replay)
    : s_(services),
      replay_(replay),
      algorithm_(make_algorithm(services.config().algorithm)),
      objective_(services.model.head(), *algorithm_, services.config().rollout.temperature,
                 services.plan.max_new_tokens),
      trainer_(services.model, *services.dp, *services.dp_tensors, trainer_options(services)) {}

std::vector<Group> TrainRole::receive(int64_t step) {
  const double waiting = s_.trace.now();
  StepInput input = s_.groups.receive(step);
  if (const RolePlan* rollout = s_.plan.role(RoleKind::rollout); rollout && s_.dp->rank() == 0)
    for (const int rank : rollout->ranks)
      s_.trace.arrow(step, "trainer", groups_arrow(step, rank), Trace::Arrow::ends);
  s_.trace.span(step, "trainer", fmt::format("get groups of step {}", step), waiting);
  s_.journal.add(input.note.sums);
  s_.journal.add(input.note.maxima);
  data_position_ = input.note.data_position;
  stop_requested_ = input.note.stop_requested;
  record_rollout(input.note);
  std::vector<Group> groups = std::move(input.groups);
  const PhaseTimer timer(s_.journal, "adv");
  if (replay_) add_own_logprobs(groups);
  if (!replay_) algorithm_->shape_rewards(groups);
  algorithm_->advantages(groups);
  return groups;
}

/// Replayed trajectories may come without log-probs: the weights of the step's start say them.
void TrainRole::add_own_logprobs(std::vector<Group>& groups) {
  if (s_.plan.algorithm == "sft") return;
  std::vector<Trajectory*> missing;
  for (Group& g : groups)
    for (Trajectory& t : g.samples)
      if (t.response.logprobs.empty()) missing.push_back(&t);
  const std::vector<const Trajectory*> view(missing.begin(), missing.end());
  auto logprobs = packed_logprobs(s_.ctx, s_.model, *s_.dp, view, pass_options(s_.config(), s_.plan));
  for (size_t i = 0; i < missing.size(); ++i) missing[i]->response.logprobs = std::move(logprobs[i]);
}

/// Tokens of older weights: their ratio starts at the weights before the first update of the step. With one
/// update those are the update's own; else a pass over the sequences says their log-probs.
void TrainRole::add_old_logprobs(std::vector<Group>& groups, int64_t step, bool one_update) {
  std::vector<Trajectory*> old;
  TokenShare share;
  for (Group& g : groups)
    for (Trajectory& t : g.samples) {
      const TokenShare of = off_policy_tokens(t, step - 1);
      share.all += of.all;
      share.other += of.other;
      if (of.other > 0) old.push_back(&t);
    }
  if (share.all > 0)
    s_.journal.set("policy/off_policy_share",
                   static_cast<double>(share.other) / static_cast<double>(share.all));
  if (s_.config().algorithm.tis_cap == 0 || old.empty()) return;
  const PhaseTimer timer(s_.journal, "old_log_prob");
  const std::vector<const Trajectory*> view(old.begin(), old.end());
  std::vector<std::vector<double>> own(old.size());
  if (!one_update) own = packed_logprobs(s_.ctx, s_.model, *s_.dp, view, pass_options(s_.config(), s_.plan));
  for (size_t i = 0; i < old.size(); ++i) {
    Trajectory& t = *old[i];
    t.old_logprobs = t.response.logprobs;
    size_t r = 0;
    for (const auto& [version, tokens] : t.response.versions)
      for (int32_t n = 0; n < tokens; ++n, ++r)
        if (version != step - 1)
          t.old_logprobs[r] = one_update ? std::numeric_limits<double>::quiet_NaN() : own[i][r];
  }
}

/// What the notes of the rollout ranks say together.
void TrainRole::record_rollout(const StepNote& note) {
  const RolePlan* rollout = s_.plan.role(RoleKind::rollout);
  if (!rollout || replay_) return;
  const auto ranks = static_cast<double>(rollout->ranks.size());
  const auto share_of_max = [&](const char* sum, const char* max) {
    const double all = s_.journal.value(sum), most = s_.journal.value(max) * ranks;
    return most > 0 ? all / most : 1.0;
  };
  s_.journal.set("perf/rollout_idle_share", 1 - share_of_max("timing_s/gen_all_ranks", "timing_s/gen"));
  s_.journal.set("perf/rollout_balance", share_of_max("perf/rollout_rows", "perf/rollout_rows_max"));
  if (s_.config().rollout.dynamic_sampling_rounds == 0) return;
  double score = 0;
  for (const auto& [position, reward] : note.replaced) score += reward;
  s_.journal.set("rollout/prompts_replaced", static_cast<double>(note.replaced.size()));
  if (!note.replaced.empty())
    s_.journal.set("rollout/replaced_score", score / static_cast<double>(note.replaced.size()));
}

bool TrainRole::phase(int64_t step) {
  std::vector<Group> groups = receive(step);
  const bool sft = s_.plan.algorithm == "sft";
  const int64_t epochs = s_.plan.batch.epochs_per_step;
  if (!sft && !replay_) add_old_logprobs(groups, step, s_.plan.batch.updates_per_step * epochs == 1);
  const std::vector<const Trajectory*> all = in_order(groups);
  if (!sft) s_.journal.add(rollout_metrics(groups));
  if (!sft) s_.journal.write_groups("rollouts", groups, step);

  const PhaseTimer timer(s_.journal, "update_actor");
  // A step may have another number of samples than the config says (replayed, or prompts left unfinished or
  // without signal): it is cut into as many updates.
  const auto size = static_cast<int64_t>(all.size());
  const int64_t updates = s_.plan.batch.updates_per_step;
  const bool as_planned = size == s_.plan.batch.samples_per_step;
  const int64_t per_update = as_planned ? s_.plan.batch.samples_per_update : (size + updates - 1) / updates;
  std::vector<UpdateStats> stats;
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (int64_t u = 0; u < updates && u * per_update < size; ++u) {
      const TraceSpan span(s_.trace, step, "trainer",
                           fmt::format("update {} of step {}", stats.size() + 1, step));
      const int64_t begin = std::min(size, u * per_update), end = std::min(size, begin + per_update);
      s_.journal.status(fmt::format("step {}: update {}/{}", step, stats.size() + 1, updates * epochs));
      stats.push_back(trainer_.update(
          s_.ctx, std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
          objective_));
      if (!stats.back().defect.empty()) stop(step, stats.back().defect, groups);
    }
  if (stats.empty())
    spdlog::warn("step {}: no group to train on, the weights stay as they are", step);
  else
    record(stats);
  s_.journal.set("policy/version", static_cast<double>(step));
  s_.journal.set("policy/lag_max", static_cast<double>(step - 1 - oldest_version(all, step - 1)));
  return true;
}

/// Means over the updates of the step; what can only be asked once comes from the first.
void TrainRole::record(const std::vector<UpdateStats>& updates) {
  const bool sft = s_.plan.algorithm == "sft";
  const std::string prefix = sft ? "train/" : "actor/";
  std::map<std::string, double> mean;
  int64_t tokens = 0;
  for (const UpdateStats& u : updates) {
    for (const auto& [name, value] : u.metrics) mean[name] += value;
    mean[prefix + "grad_norm"] += u.grad_norm;
    mean[prefix + "lr"] += u.lr;
    mean["batch/fill"] += u.fill;
    mean["batch/imbalance"] += u.imbalance;
    mean["batch/num_microbatches"] += static_cast<double>(u.num_microbatches);
    tokens += u.num_tokens;
  }
  for (auto& [name, value] : mean) value /= static_cast<double>(updates.size());
  if (!sft) mean["actor/rollout_logprob_diff_max"] = updates.front().logprob_diff_max;
  s_.journal.add(mean);
  s_.journal.set("perf/total_num_tokens", static_cast<double>(tokens));
}

void TrainRole::stop(int64_t step, const std::string& defect, std::span<const Group> groups) {
  s_.journal.write_groups("nonfinite", groups, step);
  s_.dp->barrier("dump of the non-finite step written by rank 0");
  fail(Exit::numerics,
       {.what = "training stopped before the update: " + defect,
        .where = fmt::format("step {}", step),
        .why = "weights and optimizer state are those before this update; the rollouts of the step "
               "were written to nonfinite/ in the run folder",
        .fix = "replay the dump with `temper train CONFIG --replay FILE`; lower optimizer.lr, or look "
               "for extreme rewards"});
}

}  // namespace temper
