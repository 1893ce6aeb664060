#include "src/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "src/core/process/progress.h"
#include "src/models/join_pass.h"
#include "src/ops/rows.h"
#include "src/train/flops.h"
#include "src/train/lr_schedule.h"
#include "src/train/stage_borders.h"

namespace temper {

Trainer::Trainer(Ctx& c, Model& model, Comm& all, Comm& control, const SumRanks& over,
                 const TrainerOptions& options, const Pipeline& pipeline)
    : model_(model),
      all_(all),
      control_(control),
      over_(over),
      options_(options),
      optimizer_(c, model.parameters(), options.optimizer, over, options.seed, options.optimizer_state,
                 model.splits().place().rank),
      pipeline_(pipeline),
      routers_(model, options.pass.routes, options.aux) {}

UpdateStats Trainer::update(Ctx& c, std::span<const Trajectory* const> all,
                            const PolicyObjective& objective) {
  const PackPlan plan = shared_plan(all, control_, options_.pass, pipeline_.stages());
  UpdateStats stats{
      .num_microbatches = plan.num_microbatches, .fill = plan.fill, .imbalance = plan.imbalance};
  for (const Trajectory* t : all) stats.num_tokens += packed_length(*t);
  stats.flops = training_flops(model_.config(), all);

  const AxisBytes before = bytes_sent();
  ObjectiveUpdate sums = objective.begin(all);
  stats.dropped = !accumulate_gradients(c, plan, objective, sums);
  if (stats.dropped) return stats;
  reduce_sums(sums);
  stats.logprob_diff_max = sums.logprob_diff_max;
  stats.difference = sums.difference;
  if (hook_) hook_(c, model_.parameters(), optimizer_.count() + 1);

  for (const auto& [name, value] : sums.sums)
    if (!std::isfinite(value)) stats.defect = fmt::format("the loss is not finite: {} = {}", name, value);
  if (!stats.defect.empty()) return stats;
  stats.lr = learning_rate(options_.optimizer, optimizer_.count(), options_.total_updates);
  if (change_hook_) change_hook_();
  const LaneSpan span(c.lane, "optimizer, update", optimizer_.count() + 1);
  stats.grad_norm = optimizer_.step(c, all_, stats.lr);
  if (!std::isfinite(stats.grad_norm))
    stats.defect = fmt::format("the gradient is not finite: its norm is {}", stats.grad_norm);
  stats.metrics = objective.metrics(sums);
  routers_.add_metrics(c, all_, stats.metrics);
  stats.sent = bytes_sent() - before;
  c.lane.wait();
  return stats;
}

/// The sum over dp, in this rank's shard of each unit: unit by unit while the last micro-batch goes back, or
/// where only shards are kept while any does, as often on every rank.
bool Trainer::accumulate_gradients(Ctx& c, const PackPlan& plan, const PolicyObjective& objective,
                                   ObjectiveUpdate& sums) {
  ParameterStore& parameters = model_.parameters();
  parameters.begin_update(c.lane);
  const ArenaScope scope(c.scratch);
  const auto& mine = plan.ranks[static_cast<size_t>(control_.rank())];
  routers_.begin(c, {model_, sums.all, options_.pass, pipeline_}, mine, passes_of(model_, plan, mine), all_);
  // The last micro-batch of a rank waits for the other ranks: before that of any, all may be asked. Stages
  // are at different ones, and would wait for each other: they are asked before the first.
  size_t asked = pipeline_.stages() > 1 ? 1 : mine.size(), most = 0;
  for (const auto& microbatches : plan.ranks) {
    asked = std::min(asked, microbatches.size());
    most = std::max(most, microbatches.size());
  }
  constexpr size_t kStopChecks = 16;  // most of an update: each waits for the slowest rank
  const size_t every = asked / kStopChecks + 1;
  // Where ranks have shards, or experts for the tokens of others, every one takes part in every pass.
  const bool together = parameters.shards_grads() || model_.passes_together();
  const size_t passes = together ? std::max<size_t>(most, 1) : mine.size();
  Update update{objective, sums, GradientReducer(c, parameters, over_, model_.splits().tp),
                parameters.shards_grads(), static_cast<int64_t>(passes) - 1};
  const Schedule order = schedule({pipeline_.stages(), static_cast<int>(std::ssize(model_.parts()))},
                                  pipeline_.stage(), static_cast<int64_t>(passes), training_steps);
  StageBorders borders(c, model_, sums.all, mine, order.borders);
  for (const ScheduleSlot& time : order.slots) {
    const auto i = time.step ? static_cast<size_t>(time.step->microbatch) : mine.size();
    if (i >= mine.size()) {
      pipeline_.exchange(c, borders.sent(time, mine.size()), Parcel());
      update.reducer.wait(c);
      if (time.step)
        join_pass(c, model_, part(*time.step).layers, options_.recompute, time.step->backward,
                  time.step->backward ? update.begin_backward(c, time.step->microbatch) : nullptr);
      continue;
    }
    const ScheduleStep& step = *time.step;
    const bool starts = !step.backward && step.chunk == 0;
    if (starts && stop_check_ && i < asked && i % every == 0 && stop_check_()) {
      update.reducer.wait(c);
      return false;
    }
    OpenMicrobatch& open = open_for(step);
    if (!step.backward) {
      open.begin(step, objective.pack(sums, mine[i], part(step).is_last()),
                 {.recompute = options_.recompute});
      open.routers = routers_.notes(c, open.memory, open.mb, sums.all, mine[i]);
      open.mb.routers = &open.routers;
    }
    pipeline_.exchange(c, borders.sent(time, mine.size()), incoming(time, open));
    run(c, step, open, update, borders.take(time, open.mb));
  }
  update.reducer.finish(c, passes, most);
  sum_tied_gradients(c);
  return true;
}

/// A forward gets a free one.
Trainer::OpenMicrobatch& Trainer::open_for(const ScheduleStep& step) {
  const auto fits = [&](const OpenMicrobatch& open) { return step.backward ? open.holds(step) : !open.of; };
  const auto found = std::find_if(open_.begin(), open_.end(), fits);
  return found != open_.end() ? *found : open_.emplace_back(model_.device());
}

/// What another rank made for this step.
Parcel Trainer::incoming(const ScheduleSlot& time, OpenMicrobatch& open) const {
  if (time.from < 0) return {};
  const Tensor got =
      open.memory.make({model_.stream_rows(open.mb.stream()), model_.config().hidden_size}, model_.dtype());
  (time.step->backward ? open.dy : open.x.stream) = got;
  return parcel(time.from, got);
}

/// `y`: what it makes for another rank. The last part has its forward with its backward.
void Trainer::run(Ctx& c, const ScheduleStep& step, OpenMicrobatch& open, Update& update, const Tensor& y) {
  const ModelPart of = part(step);
  if (!step.backward && of.is_last()) return;
  const int64_t tokens = open.mb.num_tokens();
  const LaneSpan span(c.lane, step.backward ? "micro-batch, rows" : "forward of a micro-batch, rows", tokens);
  const ArenaScope scratch(c.scratch);
  Ctx keeping{c.scratch, c.lane, c.threads, &open.memory};
  if (!step.backward) return forward_stage(keeping, of, open.mb.batch(c), open.x, &open.saved, y);
  if (of.is_last()) {
    run_last(keeping, of, open, update, y);
    if (model_.splits().place().rank == 0) note_work(open.mb.sequences_here(), tokens);
  } else {
    LayerWatcher* const watcher = update.begin_backward(c, step.microbatch);
    backward_pass(keeping, of, open.mb.batch(c), open.dy, open.saved, watcher, y);
  }
  open.of.reset();
}

/// Forward, loss and backward.
void Trainer::run_last(Ctx& c, const ModelPart& part, OpenMicrobatch& open, Update& update,
                       const Tensor& dx) {
  Microbatch& mb = open.mb;
  const Tensor rows = target_hidden(c, part, mb, &open.saved, open.x), drows = c.scratch.like(rows);
  LayerWatcher* const watcher = update.begin_backward(c, open.of->microbatch);
  update.objective.backward(c, drows, rows, mb, update.sums);
  const Tensor dhidden = c.scratch.make({mb.num_tokens(), rows.dim(1)}, rows.dtype);
  scatter_rows(c, dhidden, drows, mb.target_rows(c));
  backward_pass(c, part, mb.batch(c), dhidden, open.saved, watcher, dx);
}

/// A tied head is a copy of the embedding of the first stage: both get the gradients of both.
void Trainer::sum_tied_gradients(Ctx& c) {
  const Unit& unit = model_.embedding_units().front();
  if (pipeline_.stages() == 1 || !model_.config().tie_word_embeddings || !unit.trained) return;
  if (!pipeline_.first() && !pipeline_.last()) return;
  const Collectives& ranks = over_.of(unit);
  const FlatRange &all = unit.range, own = shard_range(all.size(), ranks.rank(), ranks.size());
  if (own.size() == 0) return;  // nor has the rank of the other stage some of it
  pipeline_.sum_ends(c, model_.parameters().grad_sums(all.begin + own.begin, own.size()),
                     "gradients of a tied embedding, sum over its stages");
}

void Trainer::reduce_sums(ObjectiveUpdate& sums) const {
  std::vector<double> values;
  for (const auto& [name, value] : sums.sums) values.push_back(value);
  control_.all_reduce_sum(values, "loss and metric sums, sum over dp");
  values.push_back(control_.all_reduce_max(sums.logprob_diff_max, "log-prob difference, max over dp"));
  pipeline_.copy_from_last(values, "loss and metric sums, copied from the last stage");
  size_t i = 0;
  for (auto& [name, value] : sums.sums) value = values[i++];
  sums.logprob_diff_max = values.back();
}

}  // namespace temper
