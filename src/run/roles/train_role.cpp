#include "src/run/roles/train_role.h"

#include <algorithm>

#include "src/core/log.h"
#include "src/rl/registry.h"
#include "src/rl/sampled_with.h"
#include "src/run/plan/run_options.h"
#include "src/run/record/traffic_metrics.h"
#include "src/run/roles/gradient_dump.h"
#include "src/run/roles/logprob_check.h"
#include "src/run/roles/older_samples.h"
#include "src/run/roles/train_record.h"

namespace temper {

TrainRole::TrainRole(const RoleParts& parts)
    : p_(parts),
      model_(p_.model()),
      dp_(p_.model_share.mesh->control(Axis::dp)),
      pass_(pass_options(config(), plan(), *p_.role)),
      algorithm_(make_algorithm(config().algorithm, config().reward)),
      objective_(model_, *algorithm_, pass_.temperature, plan().lengths.max_new),
      trainer_(p_.ctx, model_, trainers(), dp_, SumRanks(*p_.model_share.mesh),
               trainer_options(config(), plan(), *p_.role), p_.model_share.pipeline) {
  p_.memory.add(model_.device(), [this] { return trainer_.held_bytes(); });
  p_.memory.add(trainer_.optimizer().state_device(), [this] { return trainer_.optimizer().held_bytes(); });
  trainer_.set_change_hook([this] { p_.weights.wait_read(); });
  if (const std::string& folder = p_.task.gradient_folder; !folder.empty())
    trainer_.set_gradient_hook(gradient_dump(folder, *p_.model_share.mesh, *p_.role));
}

std::vector<Group> TrainRole::receive(int64_t step) {
  const double waiting = p_.trace.now();
  const StepInput& input = p_.groups.peek(step);  // it stays as it is: its update may be dropped
  if (const RolePlan* rollout = plan().generator(); rollout && trainers().rank() == 0)
    for (const int rank : rollout->leaders())
      p_.trace.arrow(step, "trainer", groups_arrow(step, rank), Trace::Arrow::ends);
  p_.trace.span(step, "trainer", fmt::format("get groups of step {}", step), waiting);
  p_.journal.add(input.note.sums);
  p_.journal.add(input.note.maxima);
  p_.journal.add(input.note.most);
  record_rollout(p_, input.note);
  std::vector<Group> groups = input.groups;
  const PhaseTimer timer(p_.journal, "adv");
  if (p_.task.replay()) add_own_logprobs(groups);
  if (!p_.task.replay()) algorithm_->shape_rewards(groups);
  algorithm_->advantages(groups);
  return groups;
}

/// Replayed trajectories may come without log-probs: the weights of the step's start say them.
std::vector<std::vector<double>> TrainRole::score(std::span<const Trajectory* const> all) {
  return packed_logprobs(p_.ctx, model_, dp_, all, pass_, p_.model_share.pipeline);
}

void TrainRole::add_own_logprobs(std::vector<Group>& groups) {
  if (!generates()) return;
  std::vector<Trajectory*> missing;
  for (Group& g : groups)
    for (Trajectory& t : g.samples)
      if (t.response.logprobs.empty()) missing.push_back(&t);
  const std::vector<const Trajectory*> view(missing.begin(), missing.end());
  auto logprobs = score(view);
  for (size_t i = 0; i < missing.size(); ++i) missing[i]->response.logprobs = std::move(logprobs[i]);
}

bool TrainRole::phase(int64_t step) {
  enter_phase(kPhase, step);
  std::vector<Group> groups = receive(step);
  if (p_.end.agree(trainers())) return false;
  const bool one_update = plan().batch.updates_per_step * plan().batch.epochs_per_step == 1;
  if (generates() && p_.task.replay()) warn_of_unknown_versions(p_.task, trainers(), in_order(groups), step);
  if (generates())
    add_old_logprobs(p_, groups, step, one_update, [&](const auto& all) { return score(all); });
  if (generates()) record_rollouts(p_, groups, step);
  if (p_.task.rollouts_only) {
    p_.end.set_trained(step);
    return true;
  }

  const PhaseTimer timer(p_.journal, "update_actor");
  const std::vector<UpdateStats> stats = update(groups, step);
  if (!stats.empty() && stats.back().dropped) {
    trainer_.trim(p_.ctx);
    return false;
  }
  if (!stats.empty() && !p_.task.replay() && step >= first_own_step_) {
    const std::string first = warn_of_differences(stats.front(), step, p_.trace.rank(), trainers());
    if (!first.empty() && config().algorithm.mismatch == "stop") stop_at_mismatch(p_, step, first, groups);
  }
  data_position_ = p_.groups.peek(step).note.data_position;
  step_ = step;
  p_.end.set_trained(step);
  if (stats.empty())
    log::warn("step {}: no group to train on, the weights stay as they are", step);
  else
    record_updates(p_.journal, stats, generates());
  p_.journal.set("policy/version", static_cast<double>(step));
  p_.journal.set("policy/lag_max",
                 static_cast<double>(step - 1 - oldest_version(in_order(groups), step - 1)));
  p_.journal.add(p_.memory.metrics("train"));
  record_traffic(p_.journal, trainers(), stats, trainer_.trim(p_.ctx));
  if (trainers().rank() == 0) trained_ = std::move(groups);
  return true;
}

/// A step may have another number of samples than the config says (replayed, or prompts left unfinished or
/// without signal): it is cut into as many updates.
std::vector<UpdateStats> TrainRole::update(std::span<const Group> groups, int64_t step) {
  const BatchPlan& batch = plan().batch;
  const std::vector<const Trajectory*> all = in_order(groups);
  const std::vector<size_t> begins = response_begins(all);
  const int64_t size = std::ssize(begins) - 1;
  const int64_t updates = batch.updates_per_step;
  const int64_t per_update =
      size == batch.samples_per_step ? batch.samples_per_update : (size + updates - 1) / updates;
  std::vector<UpdateStats> stats;
  expect_work(trainers().rank() == 0 ? size * batch.epochs_per_step : 0);  // of all ranks
  for (int64_t epoch = 0; epoch < batch.epochs_per_step; ++epoch)
    for (int64_t u = 0; u < updates && u * per_update < size; ++u) {
      const TraceSpan span(p_.trace, step, "trainer",
                           fmt::format("update {} of step {}", stats.size() + 1, step));
      const size_t begin = begins[static_cast<size_t>(std::min(size, u * per_update))],
                   end = begins[static_cast<size_t>(std::min(size, (u + 1) * per_update))];
      // Weights that are half way through a step are no state to go on from.
      const auto stops = [this] { return p_.end.agree(trainers()); };
      trainer_.set_stop_check(stats.empty() ? stops : std::function<bool()>());
      stats.push_back(trainer_.update(p_.ctx, std::span(all).subspan(begin, end - begin), objective_));
      if (stats.back().dropped) return stats;
      if (!stats.back().defect.empty()) stop_at_defect(p_, step, stats.back().defect, groups);
    }
  return stats;
}

std::unique_ptr<Role> make_train_role(const RoleParts& parts) { return std::make_unique<TrainRole>(parts); }

}  // namespace temper
