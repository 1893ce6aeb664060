#pragma once
// The seam between a training algorithm and the rest: what it does to rewards and groups, and the loss of a
// micro-batch as a function of per-token vectors. No tensors, no ranks: the trainer computes log-probs and
// entropies, hands them here, and carries dlogprob and dentropy back through the model.
// The loss of an update is the sum of micro-batch losses (omega holds the whole normalisation), so `sums` of
// micro-batches and ranks are added up and turned into metrics once by `metrics`.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "src/rl/aggregation.h"
#include "src/rl/types.h"

namespace temper {

/// Per target token of one micro-batch; every vector has length n unless said otherwise. Values at weight 0
/// (token not counted) are never looked at and may be NaN.
struct LossInputs {
  std::vector<double> old_logprob;           // of the policy that the ratio starts at (GRPO; SFT ignores it)
  std::vector<double> sampled_logprob;       // of the policy that sampled; empty = the same
  std::vector<double> ref_logprob;           // empty = no reference
  std::vector<double> advantage;             // of the token (SFT ignores it)
  std::vector<double> weight;                // omega_t, 0 = not counted
  std::vector<int32_t> sequence_begin = {};  // [S+1] borders of the sequences, each whole, among the tokens
};

struct LossResult {
  std::vector<double> dlogprob;        // d loss / d lp_t, omega included; 0 where not counted
  std::vector<double> dentropy;        // d loss / d H_t, likewise
  std::map<std::string, double> sums;  // the same keys in every call of a run, so ranks can add them
};

using Metrics = std::map<std::string, double>;

class Algorithm {
 public:
  virtual ~Algorithm() = default;

  /// Penalties that need log-probs and go into `reward` (KL in the reward). Called once per step before
  /// `advantages`, not for replayed rollouts: their reward already has everything in it.
  virtual void shape_rewards(std::span<Group> groups) const = 0;
  /// Fills Trajectory::advantage, and advantages, of all groups of a step; may clear Response::mask
  /// (single_group = "drop", mask_truncated).
  virtual void advantages(std::span<Group> groups) const = 0;
  /// `logprob` and `entropy` have length n; `entropy` may be empty when the algorithm reports none (SFT).
  virtual LossResult loss(std::span<const double> logprob, std::span<const double> entropy,
                          const LossInputs& in) const = 0;
  /// Metrics of an update (keys of metrics.jsonl) from `sums` added over its micro-batches and ranks.
  virtual Metrics metrics(const std::map<std::string, double>& sums) const = 0;

  virtual Aggregation aggregation() const = 0;
  /// The effective loss terms in one line, for the log.
  virtual std::string describe() const = 0;
};

}  // namespace temper
