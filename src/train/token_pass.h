#pragma once
// The packed forward over trajectories, and what it gives per response token. Training, the reference role
// and `score` all come through here, so their log-probs are the same bits as the rollout's.

#include <functional>
#include <span>
#include <vector>

#include "src/comm/comm.h"
#include "src/models/layer_pass.h"
#include "src/nn/parallel/pipeline.h"
#include "src/train/microbatch.h"
#include "src/train/packing.h"
#include "src/train/routers/given_routes.h"

namespace temper {

struct PassOptions {
  double temperature = 1.0;
  int64_t token_budget = 0;  // train.max_tokens_per_microbatch
  /// Smaller micro-batches keep stages of a pipeline busy, down to so many tokens; 0: none is smaller.
  int64_t least_of_stages = 0;
  CostModel cost;
  RouteOptions routes = {};
};

/// The packing plan of these trajectories for ranks with so many stages, made once on rank 0 and shared.
PackPlan shared_plan(std::span<const Trajectory* const> all, Comm& comm, const PassOptions& options,
                     int stages);

/// The share of a packed micro-batch that this rank has with this model.
Microbatch pack_for(const Model& model, std::span<const Trajectory* const> all,
                    std::span<const int32_t> sequences);

/// The head's values of the own targets; of none, nothing is asked of it.
TokenStats own_stats(Ctx& c, const Model& model, const CTensor& rows, const CTensor& targets,
                     double temperature);
/// Log-probs and entropies of all targets of a micro-batch, on every context parallel rank; without others
/// the own values as they are.
TokenStats stats_of_all(Ctx& c, const Model& model, const Microbatch& mb, const TokenStats& own);

/// Hidden states of the own target rows [n, D] of a packed batch, from the arena; `x`: the stream before the
/// model's layers, where it has not the first ones.
Tensor target_hidden(Ctx& c, const ModelPart& part, const Microbatch& mb, PassSaved* saved,
                     const Residual& x = {});

/// What goes through which model, with whom.
struct TokenPass {
  const Model& model;
  std::span<const Trajectory* const> all;
  const PassOptions& options;
  const Pipeline& pipeline;
};
/// Before a part of the model gets a micro-batch, which is a rank's `index`-th, and after it: `hidden` are
/// the rows of its targets, where the part is the last one.
using BeforePart = std::function<void(Microbatch& mb, size_t index)>;
using AfterPart =
    std::function<void(const ModelPart& part, const Microbatch& mb, size_t index, const Tensor& hidden)>;
/// Forwards of these micro-batches. `passes`: those of the rank with the most, which all make who gather
/// weights from each other.
void for_each_microbatch(Ctx& c, const TokenPass& pass, const std::vector<std::vector<int32_t>>& microbatches,
                         size_t passes, const BeforePart& before, const AfterPart& after);
/// The passes of a rank with `mine`, where `plan` has those of all.
size_t passes_of(const Model& model, const PackPlan& plan, const std::vector<std::vector<int32_t>>& mine);

/// The log-prob and the entropy of each response token of a trajectory, 0 of those that do not count.
struct TokenValues {
  std::vector<double> logprob, entropy;
};
/// The values of every trajectory, by this rank alone.
std::vector<TokenValues> local_token_values(Ctx& c, const Model& model,
                                            std::span<const Trajectory* const> all,
                                            const PassOptions& options);

/// Log-probs of all response tokens of every trajectory, 0 of those that do not count, by this rank alone, or
/// with those of `pipeline`, all of which get them.
std::vector<std::vector<double>> local_logprobs(Ctx& c, const Model& model,
                                                std::span<const Trajectory* const> all,
                                                const PassOptions& options, const Pipeline& pipeline = {});

/// Log-probs of all response tokens of every trajectory, 0 of those that do not count (the ranks of `comm`
/// share the work and the result; those of `pipeline` have the model's stages).
std::vector<std::vector<double>> packed_logprobs(Ctx& c, const Model& model, Comm& comm,
                                                 std::span<const Trajectory* const> all,
                                                 const PassOptions& options, const Pipeline& pipeline = {});

}  // namespace temper
