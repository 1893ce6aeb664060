#pragma once
// What a trainer optimises: from the hidden states of a micro-batch's target rows to their gradients. The
// trainer itself knows neither heads nor losses.

#include <map>
#include <optional>
#include <span>
#include <string>

#include "src/models/model.h"
#include "src/rl/algorithm.h"
#include "src/train/microbatch.h"

namespace temper {

/// A response token whose log-prob is another here than where it was sampled.
struct LogprobDifference {
  int64_t version = 0;  // of the weights that sampled it
  int64_t data_position = 0;
  int32_t group = 0, sample = 0, token = 0;
  double sampled = 0, own = 0;
  int64_t tokens = 0;  // of this version that differ
};

/// An objective over the micro-batches of one update.
struct ObjectiveUpdate {
  std::span<const Trajectory* const> all;   // its trajectories, known to all ranks
  UpdateCounts counts;                      // of these
  std::map<std::string, double> sums = {};  // the same keys on every rank, to be added up
  double logprob_diff_max = 0;              // own log-prob - that of the sampling, over counted tokens
  /// The first of these differences, on this rank, in what the newest weights sampled.
  std::optional<LogprobDifference> difference = {};
};

/// The loss of an algorithm on the log-probs of a policy.
class PolicyObjective {
 public:
  /// `max_response_tokens`: Lmax of seq-mean-token-sum-norm.
  PolicyObjective(const Model& model, const Algorithm& algorithm, double temperature,
                  int64_t max_response_tokens)
      : model_(model),
        algorithm_(algorithm),
        temperature_(temperature),
        max_response_tokens_(max_response_tokens) {}

  ObjectiveUpdate begin(std::span<const Trajectory* const> all) const;
  /// A micro-batch of these sequences of the update, as this rank has it; `losses`: with loss inputs.
  Microbatch pack(const ObjectiveUpdate& update, std::span<const int32_t> sequences, bool losses) const;
  /// rows, drows: [n, D], of the targets of `mb`, whose loss inputs are filled. drows is overwritten, the
  /// head's weight gradient accumulates, the loss adds to the sums of the update.
  void backward(Ctx& c, const Tensor& drows, const CTensor& rows, Microbatch& mb,
                ObjectiveUpdate& update) const;
  /// The part of backward that the host does: the loss, in double, from `now`; it adds to the sums of the
  /// update.
  TokenGradients loss_gradients(Ctx& c, Microbatch& mb, ObjectiveUpdate& update, const TokenStats& now) const;
  Metrics metrics(const ObjectiveUpdate& update) const { return algorithm_.metrics(update.sums); }

 private:
  const Model& model_;  // whose last layers and head are needed by backward alone
  const Algorithm& algorithm_;
  double temperature_;
  int64_t max_response_tokens_;
};

}  // namespace temper
