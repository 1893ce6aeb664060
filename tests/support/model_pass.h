#pragma once
// All targets of some sequences through the passes that a trainer makes, in one micro-batch: log-probs, and
// the gradients of a weighted sum of them. For comparisons with transformers.

#include "src/models/model.h"
#include "src/ops/backend.h"
#include "src/ops/rows.h"
#include "src/train/token_pass.h"

namespace temper {

inline Microbatch pack_all(const std::vector<Trajectory>& sequences) {
  std::vector<const Trajectory*> all;
  std::vector<int32_t> order;
  for (const Trajectory& t : sequences) {
    order.push_back(static_cast<int32_t>(all.size()));
    all.push_back(&t);
  }
  return pack(all, order);
}

inline std::vector<double> target_logprobs(Ctx& c, const Model& model,
                                           const std::vector<Trajectory>& sequences) {
  const Microbatch mb = pack_all(sequences);
  const Tensor hidden = target_hidden(c, model, mb, nullptr);
  const CTensor targets = to_device(c, view_of(mb.targets.data(), {hidden.dim(0)}));
  return to_host<double>(c, model.head().forward(c, hidden, targets, 1.0).logprob);
}

/// The gradients of the model become those of the sum of weights[i] * log-prob i. Returns the log-probs.
inline std::vector<double> target_gradients(Ctx& c, Model& model, const std::vector<Trajectory>& sequences,
                                            const std::vector<double>& weights,
                                            const RecomputePlan& recompute = {}) {
  const Microbatch mb = pack_all(sequences);
  model.parameters().resume_grads(c.lane);
  model.parameters().clear_grads();
  Arena activations(c.device);
  Ctx keeping{c.scratch, c.lane, c.threads, &activations};
  PassSaved saved{.recompute = recompute};
  const Tensor rows = target_hidden(keeping, model, mb, &saved), drows = c.scratch.like(rows);
  const CTensor targets = to_device(c, view_of(mb.targets.data(), {rows.dim(0)}));
  const TokenStats stats = model.head().forward(c, rows, targets, 1.0);
  const std::vector<float> narrow(weights.begin(), weights.end());
  const int64_t n = rows.dim(0);
  CHECK(std::ssize(weights) == n, "{} weights for {} targets", weights.size(), n);
  const bool wide = stats.logprob.dtype == DType::f64;
  const CTensor dlogprob = to_device(c, wide ? view_of(weights.data(), {n}) : view_of(narrow.data(), {n}));
  const Tensor dentropy = c.scratch.like(dlogprob);
  device::fill(c.lane, dentropy.raw(), 0, dentropy.bytes());
  model.head().backward_into(c, drows, {dlogprob, dentropy}, rows, targets, stats, 1.0);
  const Tensor dhidden = c.scratch.make({static_cast<int64_t>(mb.tokens.size()), rows.dim(1)}, rows.dtype);
  scatter_rows(c, dhidden, drows, to_device(c, view_of(mb.rows.data(), {n})));
  backward_pass(keeping, model, mb.batch(c), dhidden, saved, nullptr);
  return to_host<double>(c, stats.logprob);
}

}  // namespace temper
