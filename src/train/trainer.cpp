#include "src/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "src/core/process/progress.h"
#include "src/ops/rows.h"
#include "src/train/flops.h"
#include "src/train/gradient_reducer.h"
#include "src/train/lr_schedule.h"

namespace temper {
namespace {

constexpr size_t kStopChecks = 16;  // most of an update: each waits for the slowest rank

}  // namespace

Trainer::Trainer(Ctx& c, Model& model, Comm& all, Comm& control, Collectives& dp,
                 const TrainerOptions& options)
    : model_(model),
      all_(all),
      control_(control),
      dp_(dp),
      options_(options),
      optimizer_(c, model.parameters(), options.optimizer, dp, options.seed, options.optimizer_state,
                 model.splits().place().rank),
      saved_(model.device(), MemoryUse::activations) {}

UpdateStats Trainer::update(Ctx& c, std::span<const Trajectory* const> all,
                            const PolicyObjective& objective) {
  const PackPlan plan = shared_plan(all, control_, options_.pass);
  UpdateStats stats{
      .num_microbatches = plan.num_microbatches, .fill = plan.fill, .imbalance = plan.imbalance};
  for (const Trajectory* t : all) stats.num_tokens += packed_length(*t);
  stats.flops = training_flops(model_.config(), all);

  ObjectiveUpdate update = objective.begin(all);
  stats.dropped = !accumulate_gradients(c, all, plan, objective, update);
  if (stats.dropped) return stats;
  reduce_sums(update);
  stats.logprob_diff_max = update.logprob_diff_max;
  stats.difference = update.difference;
  if (hook_) hook_(c, model_.parameters(), optimizer_.count() + 1);

  for (const auto& [name, value] : update.sums)
    if (!std::isfinite(value)) stats.defect = fmt::format("the loss is not finite: {} = {}", name, value);
  if (!stats.defect.empty()) return stats;
  stats.lr = learning_rate(options_.optimizer, optimizer_.count(), options_.total_updates);
  const LaneSpan span(c.lane, "optimizer, update", optimizer_.count() + 1);
  stats.grad_norm = optimizer_.step(c, all_, stats.lr);
  if (!std::isfinite(stats.grad_norm))
    stats.defect = fmt::format("the gradient is not finite: its norm is {}", stats.grad_norm);
  stats.metrics = objective.metrics(update);
  c.lane.wait();
  return stats;
}

/// The sum over dp, in this rank's shard of each unit: unit by unit while the last micro-batch goes back.
bool Trainer::accumulate_gradients(Ctx& c, std::span<const Trajectory* const> all, const PackPlan& plan,
                                   const PolicyObjective& objective, ObjectiveUpdate& update) {
  model_.parameters().resume_grads(c.lane);
  model_.parameters().clear_grads();
  GradientReducer reducer(model_.parameters(), dp_, model_.splits().tp);
  const auto& mine = plan.ranks[static_cast<size_t>(control_.rank())];
  // The last micro-batch of a rank waits for the other ranks: before that of any, all may be asked.
  size_t asked = mine.size();
  for (const auto& microbatches : plan.ranks) asked = std::min(asked, microbatches.size());
  const size_t every = asked / kStopChecks + 1;
  for (size_t i = 0; i < mine.size(); ++i) {
    if (stop_check_ && i < asked && i % every == 0 && stop_check_()) return false;
    Microbatch mb = pack(all, mine[i]);
    run_microbatch(c, mb, all, objective, update, i + 1 == mine.size() ? &reducer : nullptr);
    note_work(static_cast<int64_t>(mine[i].size()), static_cast<int64_t>(mb.tokens.size()));
  }
  if (mine.empty()) reducer.reduce_all(c);
  return true;
}

void Trainer::run_microbatch(Ctx& c, Microbatch& mb, std::span<const Trajectory* const> all,
                             const PolicyObjective& objective, ObjectiveUpdate& update,
                             LayerWatcher* watcher) {
  const LaneSpan span(c.lane, "micro-batch, rows", static_cast<int64_t>(mb.tokens.size()));
  ArenaScope scratch(c.scratch), activations(saved_);
  Ctx keeping{c.scratch, c.lane, c.threads, &saved_};
  PassSaved saved{.recompute = options_.recompute};
  const Tensor rows = target_hidden(keeping, model_, mb, &saved), drows = c.scratch.like(rows);
  objective.backward(keeping, drows, rows, mb, all, update);
  const Tensor dhidden = c.scratch.make({static_cast<int64_t>(mb.tokens.size()), rows.dim(1)}, rows.dtype);
  scatter_rows(c, dhidden, drows, to_device(c, view_of(mb.rows.data(), {rows.dim(0)})));
  backward_pass(keeping, model_, mb.batch(c), dhidden, saved, watcher);
}

void Trainer::reduce_sums(ObjectiveUpdate& update) {
  std::vector<double> values;
  for (const auto& [name, value] : update.sums) values.push_back(value);
  control_.all_reduce_sum(values, "loss and metric sums, sum over dp");
  size_t i = 0;
  for (auto& [name, value] : update.sums) value = values[i++];
  update.logprob_diff_max =
      control_.all_reduce_max(update.logprob_diff_max, "log-prob difference, max over dp");
}

}  // namespace temper
