#include "src/train/objective.h"

#include <cmath>

#include "src/rl/sampled_with.h"
#include "src/train/token_pass.h"

namespace temper {
namespace {

void note_difference(const Trajectory& t, int32_t token, double sampled, double own,
                     std::optional<LogprobDifference>& newest) {
  const std::optional<int64_t> version = version_of(t.response, token);
  if (!version || (newest && newest->version > *version)) return;
  if (!newest || newest->version < *version)
    newest = LogprobDifference{*version, t.data_position, t.group, t.sample, token, sampled, own};
  ++newest->tokens;
}

/// Where the policy that sampled is not known its log-probs are those of now.
void complete_inputs(Microbatch& mb, std::span<const double> logprob, ObjectiveUpdate& update) {
  LossInputs& in = mb.inputs;
  for (size_t i = 0; i < logprob.size(); ++i) {
    if (std::isnan(in.old_logprob[i])) in.old_logprob[i] = logprob[i];
    if (std::isnan(in.sampled_logprob[i])) in.sampled_logprob[i] = logprob[i];
    const double difference = std::abs(logprob[i] - in.sampled_logprob[i]);
    if (in.weight[i] == 0.0 || !(difference > 0)) continue;
    update.logprob_diff_max = std::max(update.logprob_diff_max, difference);
    // The rank that computed it says so.
    const auto at = static_cast<int64_t>(i);
    if (at < mb.own_targets.begin || at >= mb.own_targets.end) continue;
    note_difference(*update.all[static_cast<size_t>(mb.sequence[i])], mb.offset[i], in.sampled_logprob[i],
                    logprob[i], update.difference);
  }
}

/// A copy of numbers of the host where the ops of this context read them.
CTensor on_device(Ctx& c, const std::vector<double>& values, DType dtype) {
  const Tensor t = c.scratch.make({std::ssize(values)}, dtype);
  const std::vector<float> narrow(values.begin(), values.end());
  const void* from = dtype == DType::f64 ? static_cast<const void*>(values.data()) : narrow.data();
  device::copy_to_device(c.lane, t.raw(), from, t.bytes());
  return t;
}

}  // namespace

ObjectiveUpdate PolicyObjective::begin(std::span<const Trajectory* const> all) const {
  ObjectiveUpdate update{.all = all, .counts = {.max_response_tokens = max_response_tokens_}};
  const std::vector<size_t> begins = response_begins(all);
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const int64_t tokens = counted_tokens_of_response(all, begins[i]);
    update.counts.tokens += tokens;
    update.counts.sequences += tokens > 0;
  }
  // A loss of nothing names the sums, so that a rank without micro-batches reduces the same list.
  update.sums = algorithm_.loss({}, {}, {}).sums;
  return update;
}

Microbatch PolicyObjective::pack(const ObjectiveUpdate& update, std::span<const int32_t> sequences,
                                 bool losses) const {
  Microbatch mb = pack_for(model_, update.all, sequences);
  if (losses) fill_loss_inputs(mb, update.all, algorithm_.aggregation(), update.counts);
  return mb;
}

TokenGradients PolicyObjective::loss_gradients(Ctx& c, Microbatch& mb, ObjectiveUpdate& update,
                                               const TokenStats& now) const {
  const std::vector<double> logprob = to_host<double>(c, now.logprob);
  complete_inputs(mb, logprob, update);
  const LossResult loss = algorithm_.loss(logprob, to_host<double>(c, now.entropy), mb.inputs);
  for (const auto& [name, value] : loss.sums) update.sums.at(name) += value;
  return {on_device(c, loss.dlogprob, now.logprob.dtype), on_device(c, loss.dentropy, now.logprob.dtype)};
}

void PolicyObjective::backward(Ctx& c, const Tensor& drows, const CTensor& rows, Microbatch& mb,
                               ObjectiveUpdate& update) const {
  ArenaScope scope(c.scratch);
  const CTensor targets = mb.target_ids(c);
  const TokenStats own = own_stats(c, model_, rows, targets, temperature_);
  const TokenGradients up = loss_gradients(c, mb, update, stats_of_all(c, model_, mb, own));
  if (rows.dim(0) == 0) return;
  const auto here = [&](const CTensor& of_all) {
    return temper::rows(of_all, mb.own_targets.begin, mb.own_targets.end);
  };
  model_.head().backward_into(c, drows, {here(up.dlogprob), here(up.dentropy)}, rows, targets, own,
                              temperature_);
}

}  // namespace temper
