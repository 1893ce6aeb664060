#pragma once
// One optimizer update from the trajectories of the update, known to all dp ranks. The gradient is the sum
// over all counted tokens with weights omega counted globally, however the update was cut into micro-batches
// and ranks.

#include <functional>
#include <span>

#include "src/rl/algorithm.h"
#include "src/train/optimizer.h"
#include "src/train/token_pass.h"

namespace temper {

struct UpdateStats {
  std::string defect;                     // not empty: loss or gradient is not finite and nothing was changed
  std::map<std::string, double> metrics;  // of the algorithm, summed over micro-batches and ranks
  double grad_norm = 0;
  double lr = 0;
  double logprob_diff_max = 0;  // trainer's log-prob - rollout's, over counted tokens of all ranks
  int64_t num_microbatches = 0;
  double fill = 0, imbalance = 0;
  int64_t num_tokens = 0;  // packed rows
};

struct TrainerOptions {
  PassOptions pass;
  OptimizerConfig optimizer;
  int64_t total_updates = 0;
  int64_t max_response_tokens = 0;  // Lmax of seq-mean-token-sum-norm
};

class Trainer {
 public:
  /// Sees the gradients after the sum over dp (own shard of each unit only), before clipping.
  using GradientHook = std::function<void(Ctx&, ParameterStore&, int64_t update)>;

  /// `control` and `dp` have the same ranks, which share every update.
  Trainer(Model& model, Comm& control, Collectives& dp, const TrainerOptions& options);

  /// A non-finite loss or gradient is a `defect`, the same on all ranks; weights and optimizer state are
  /// untouched.
  UpdateStats update(Ctx& c, std::span<const Trajectory* const> all, const Algorithm& algorithm);

  void set_gradient_hook(GradientHook hook) { hook_ = std::move(hook); }
  Optimizer& optimizer() { return optimizer_; }
  Model& model() { return model_; }
  const TrainerOptions& options() const { return options_; }

 private:
  void run_microbatch(Ctx& c, Microbatch& mb, const Algorithm& algorithm, std::map<std::string, double>& sums,
                      double& diff_max);
  void reduce_sums(std::map<std::string, double>& sums);

  void reduce_gradients(Ctx& c);

  Model& model_;
  Comm& control_;
  Collectives& dp_;
  TrainerOptions options_;
  Optimizer optimizer_;
  GradientHook hook_;
};

}  // namespace temper
