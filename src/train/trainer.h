#pragma once
// One optimizer update from the trajectories of the update, known to all dp ranks. The gradient is the sum
// over all counted tokens with weights omega counted globally, however the update was cut into micro-batches
// and ranks.

#include <deque>
#include <functional>
#include <span>

#include "src/train/gradient_reducer.h"
#include "src/train/objective.h"
#include "src/train/optimizer.h"
#include "src/train/routers/update_routers.h"
#include "src/train/schedule.h"
#include "src/train/token_pass.h"

namespace temper {

struct UpdateStats {
  std::string defect = {};  // not empty: loss or gradient is not finite and nothing was changed
  Metrics metrics = {};     // of the objective, summed over micro-batches and ranks
  double grad_norm = 0;
  double lr = 0;
  double logprob_diff_max = 0;  // trainer's log-prob - rollout's, over counted tokens of all ranks
  std::optional<LogprobDifference> difference = {};  // this rank's
  int64_t num_microbatches = 0;
  double fill = 0, imbalance = 0;
  int64_t num_tokens = 0;  // packed rows
  double flops = 0;        // of all ranks (train/flops.h)
  AxisBytes sent = {};     // by this rank
  bool dropped = false;    // asked to stop before its gradients were complete: nothing has changed
};

struct TrainerOptions {
  PassOptions pass;
  OptimizerConfig optimizer;
  int64_t total_updates = 0;
  uint64_t seed = 0;  // of the run
  RecomputePlan recompute = {};
  StatePlace optimizer_state = StatePlace::device;
  AuxLossOptions aux = {};
};

class Trainer {
 public:
  /// Sees the gradients after the sum over dp (own shard of each unit only), before clipping.
  using GradientHook = std::function<void(Ctx&, ParameterStore&, int64_t update)>;

  /// `control` and `over` have the same ranks, which share every update; `all`: these and the ranks that
  /// share the model, as those of `pipeline` do, each with layers of its own.
  Trainer(Ctx& c, Model& model, Comm& all, Comm& control, const SumRanks& over, const TrainerOptions& options,
          const Pipeline& pipeline = {});

  /// Its work is done when it returns. A non-finite loss or gradient is a `defect`, the same on all ranks;
  /// weights and optimizer state are untouched.
  UpdateStats update(Ctx& c, std::span<const Trajectory* const> all, const PolicyObjective& objective);

  /// Asked now and then while gradients are made, by all ranks together: true drops the update. None: never.
  void set_stop_check(std::function<bool()> check) { stop_check_ = std::move(check); }
  /// Called by each rank before its weights change.
  void set_change_hook(std::function<void()> hook) { change_hook_ = std::move(hook); }
  void set_gradient_hook(GradientHook hook) { hook_ = std::move(hook); }
  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }
  Model& model() { return model_; }
  /// Most bytes of activations that were ever kept for a backward.
  int64_t activation_bytes() const;
  /// Bytes of activations; the optimizer counts its own.
  int64_t held_bytes() const;
  /// Between steps: gives the memory of the activations back, and on a GPU that of the gradients. Of weights
  /// that were split for an update all are here again. Bytes that this rank sent for it.
  AxisBytes trim(Ctx& c);

 private:
  /// By this rank, so far.
  AxisBytes bytes_sent() const {
    const Splits& splits = model_.splits();
    const auto by = [](const Collectives* axis) { return axis ? axis->bytes_sent() : 0; };
    return {{Axis::tp, by(splits.tp)},
            {Axis::cp, by(splits.cp)},
            {Axis::dp, over_.bytes_sent(model_.parameters().units())},
            {Axis::pp, pipeline_.bytes_sent()},
            {Axis::ep, splits.ep == splits.tp ? 0 : by(splits.ep)}};
  }
  /// A micro-batch between its forward and its backward by a part of the model.
  struct OpenMicrobatch {
    explicit OpenMicrobatch(Device device) : memory(device, MemoryUse::activations) {}
    void begin(const ScheduleStep& step, Microbatch microbatch, PassSaved keeps) {
      memory.release(0);
      of = step;
      mb = std::move(microbatch);
      saved = std::move(keeps);
    }
    bool holds(const ScheduleStep& step) const {
      return of && of->microbatch == step.microbatch && of->chunk == step.chunk;
    }

    Arena memory;
    std::optional<ScheduleStep> of = {};  // none: free
    Microbatch mb = {};
    PassSaved saved = {};
    RouterNotes routers = {};
    Residual x = {};  // what the stage before sent
    Tensor dy = {};   // what the next stage sent
  };

  /// What an update is made of.
  struct Update {
    const PolicyObjective& objective;
    ObjectiveUpdate& sums;  // of the losses, and its trajectories
    GradientReducer reducer;
    bool every_time;  // sums are made after every backward, not only after the last one
    int64_t last;     // pass of this rank
    /// Who is told of the units of a backward that begins now. Null: later ones add to its gradients.
    GradientReducer* begin_backward(Ctx& c, int64_t microbatch) {
      if (!every_time && microbatch < last) return nullptr;
      reducer.begin_backward(c);
      return &reducer;
    }
  };

  /// False: dropped.
  bool accumulate_gradients(Ctx& c, const PackPlan& plan, const PolicyObjective& objective,
                            ObjectiveUpdate& sums);
  ModelPart part(const ScheduleStep& step) const {
    return {model_, model_.parts()[static_cast<size_t>(step.chunk)]};
  }
  OpenMicrobatch& open_for(const ScheduleStep& step);
  void run(Ctx& c, const ScheduleStep& step, OpenMicrobatch& open, Update& update, const Tensor& y);
  void run_last(Ctx& c, const ModelPart& part, OpenMicrobatch& open, Update& update, const Tensor& dx);
  Parcel incoming(const ScheduleSlot& time, OpenMicrobatch& open) const;
  void sum_tied_gradients(Ctx& c);
  void reduce_sums(ObjectiveUpdate& sums) const;

  Model& model_;
  Comm& all_;
  Comm& control_;
  SumRanks over_;
  TrainerOptions options_;
  Optimizer optimizer_;
  Pipeline pipeline_;
  std::deque<OpenMicrobatch> open_;
  UpdateRouters routers_;
  GradientHook hook_;
  std::function<bool()> stop_check_;
  std::function<void()> change_hook_;
};

}  // namespace temper
