#include "src/train/trainer.h"

#include <cmath>

#include "src/ops/rows.h"
#include "src/train/lr_schedule.h"

namespace temper {
namespace {

UpdateCounts count(std::span<const Trajectory* const> all, int64_t max_response_tokens) {
  UpdateCounts counts{.max_response_tokens = max_response_tokens};
  for (const Trajectory* t : all) {
    counts.tokens += t->counted_tokens();
    counts.sequences += t->counted_tokens() > 0;
  }
  return counts;
}

Tensor from_doubles(Ctx& c, const std::vector<double>& values, DType dtype) {
  Tensor t = c.scratch.make({static_cast<int64_t>(values.size())}, dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f64)
      t.as<double>()[i] = values[i];
    else
      t.as<float>()[i] = static_cast<float>(values[i]);
  }
  return t;
}

}  // namespace

Trainer::Trainer(Model& model, Comm& control, Collectives& dp, const TrainerOptions& options)
    : model_(model),
      control_(control),
      dp_(dp),
      options_(options),
      optimizer_(model.parameters(), options.optimizer, dp) {}

UpdateStats Trainer::update(Ctx& c, std::span<const Trajectory* const> all, const Algorithm& algorithm) {
  const PackPlan plan = shared_plan(all, control_, options_.pass);
  const UpdateCounts counts = count(all, options_.max_response_tokens);
  UpdateStats stats;
  stats.num_microbatches = plan.num_microbatches;
  stats.fill = plan.fill;
  stats.imbalance = plan.imbalance;
  for (const Trajectory* t : all) stats.num_tokens += packed_length(*t);

  model_.parameters().zero_grads(c.lane);
  // A loss of nothing names the sums, so that a rank without micro-batches reduces the same list.
  std::map<std::string, double> sums = algorithm.loss({}, {}, {}).sums;
  for (const auto& sequences : plan.ranks[static_cast<size_t>(control_.rank())]) {
    Microbatch mb = pack(all, sequences);
    fill_loss_inputs(mb, all, algorithm.aggregation(), counts);
    run_microbatch(c, mb, algorithm, sums, stats.logprob_diff_max);
  }
  reduce_gradients(c);
  reduce_sums(sums);
  stats.logprob_diff_max =
      control_.all_reduce_max(stats.logprob_diff_max, "log-prob difference, max over dp");
  if (hook_) hook_(c, model_.parameters(), optimizer_.count() + 1);

  for (const auto& [name, value] : sums)
    if (!std::isfinite(value)) stats.defect = fmt::format("the loss is not finite: {} = {}", name, value);
  if (!stats.defect.empty()) return stats;
  stats.lr = learning_rate(options_.optimizer, optimizer_.count(), options_.total_updates);
  stats.grad_norm = optimizer_.step(c, control_, stats.lr);
  if (!std::isfinite(stats.grad_norm))
    stats.defect = fmt::format("the gradient is not finite: its norm is {}", stats.grad_norm);
  stats.metrics = algorithm.metrics(sums);
  return stats;
}

void Trainer::run_microbatch(Ctx& c, Microbatch& mb, const Algorithm& algorithm,
                             std::map<std::string, double>& sums, double& diff_max) {
  if (mb.empty()) return;
  ArenaScope scope(c.scratch);
  ModelSaved saved;
  const Tensor hidden = target_hidden(c, model_, mb, &saved);
  const int64_t n = hidden.dim(0);
  const CTensor targets = view_of(mb.targets.data(), {n});
  const double temperature = options_.pass.temperature;
  const TokenStats now = model_.head().forward(c, hidden, targets, temperature);
  const std::vector<double> logprob = to_host<double>(c, now.logprob);
  for (size_t i = 0; i < logprob.size(); ++i) {
    if (std::isnan(mb.inputs.old_logprob[i])) mb.inputs.old_logprob[i] = logprob[i];
    if (std::isnan(mb.inputs.sampled_logprob[i])) mb.inputs.sampled_logprob[i] = logprob[i];
    if (mb.inputs.weight[i] != 0.0)
      diff_max = std::max(diff_max, std::abs(logprob[i] - mb.inputs.sampled_logprob[i]));
  }
  const LossResult loss = algorithm.loss(logprob, to_host<double>(c, now.entropy), mb.inputs);
  for (const auto& [name, value] : loss.sums) sums.at(name) += value;

  const Tensor dlogprob = from_doubles(c, loss.dlogprob, now.logprob.dtype);
  const Tensor dentropy = from_doubles(c, loss.dentropy, now.logprob.dtype);
  const Tensor dtarget = model_.head().backward(c, dlogprob, dentropy, hidden, targets, now, temperature);
  Tensor dhidden = c.scratch.make({static_cast<int64_t>(mb.tokens.size()), hidden.dim(1)}, hidden.dtype);
  scatter_rows(c, dhidden, dtarget, view_of(mb.rows.data(), {n}));
  model_.backward(c, mb.batch(c), dhidden, saved);
}

void Trainer::reduce_gradients(Ctx& c) {
  const ParameterStore& parameters = model_.parameters();
  for (const Unit& unit : parameters.units())
    dp_.reduce_scatter_sum(c, parameters.grads_of(unit), "gradients, sum over dp");
}

void Trainer::reduce_sums(std::map<std::string, double>& sums) {
  std::vector<double> values;
  for (const auto& [name, value] : sums) values.push_back(value);
  control_.all_reduce_sum(values, "loss and metric sums, sum over dp");
  size_t i = 0;
  for (auto& [name, value] : sums) value = values[i++];
}

}  // namespace temper
