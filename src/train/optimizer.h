#pragma once
// AdamW with its state sharded over dp: each rank holds the fp32 master weights and moments of its
// shard_range of the flat parameter buffer, updates it, and all ranks copy the new weights from the owners.
// In fp32 and fp64 runs the weights are the master. Moments start at zero; weight decay only where the
// parameter has two dimensions.

#include <vector>

#include "src/comm/comm.h"
#include "src/config/config.h"
#include "src/core/ctx.h"
#include "src/nn/parameter.h"

namespace temper {

/// A piece of one parameter that this rank owns, with its optimizer state (checkpointed row by row of this
/// list).
struct OptimizerPiece {
  Parameter* parameter = nullptr;
  FlatRange range;              // elements of the flattened parameter
  Tensor weight, master, m, v;  // [range.size()] views; master is weight in fp32 and fp64 runs
  CTensor grad;
};

class Optimizer {
 public:
  Optimizer(ParameterStore& parameters, const OptimizerConfig& config, const Comm& dp);

  /// After the gradients of this rank's shard hold the sum over dp: clips, updates the shard, gathers the
  /// weights. Returns the norm before clipping; a non-finite norm changes nothing (the caller stops the run).
  double step(Ctx& c, Comm& dp, double lr);

  const std::vector<OptimizerPiece>& pieces() const { return pieces_; }
  /// Finished updates; restored with the state.
  int64_t count() const { return count_; }
  /// After the pieces were filled from a checkpoint: weights from masters, on all ranks.
  void restore(Ctx& c, Comm& dp, int64_t count);
  int64_t state_bytes() const { return state_bytes_; }

 private:
  ParameterStore& parameters_;
  OptimizerConfig config_;
  Arena memory_;
  std::vector<OptimizerPiece> pieces_;
  int64_t count_ = 0;
  int64_t state_bytes_ = 0;
};

}  // namespace temper
