#pragma once
// AdamW with its state sharded over dp, unit by unit: each rank holds the fp32 master weights and moments of
// its shard_range of every unit, updates it, and all ranks copy the new weights from their owners. In fp32
// and fp64 runs the weights are the master. Moments start at zero; weight decay only where the parameter has
// two dimensions; what is not trained has no state.
// Formats (src/ops/optimizer.h): of a bf16 weight the rank holds its master in fp32, or what the weight lacks
// of it, with the same bits of every result; moments are in fp32 (fp64 in fp64 runs) or in bf16, rounded by
// the seed, the number of the update and that of the element in the flat buffers.

#include <span>
#include <vector>

#include "src/comm/collectives.h"
#include "src/comm/comm.h"
#include "src/config/config.h"
#include "src/nn/parameter.h"
#include "src/train/sum_ranks.h"

namespace temper {

/// A piece of one parameter that this rank owns, with its optimizer state (checkpointed row by row of this
/// list).
struct OptimizerPiece {
  Parameter* parameter = nullptr;
  FlatRange range;  // elements of the flattened parameter, as far as this rank has it
  /// [range.size()] views; master is weight in fp32 and fp64 runs, and u16 where it is what the weight lacks
  Tensor weight, master, m, v;
  CTensor grad;
};

/// Elements of a piece that lie next to each other in the whole parameter.
struct LogicalRange {
  FlatRange own;      // elements of the piece's views
  int64_t whole = 0;  // the first of them in the whole parameter
  bool first = true;  // no tensor parallel rank before this one has them
};
std::vector<LogicalRange> logical_ranges(const OptimizerPiece& piece, int tp_rank);

/// The parameters of a unit, as far as this rank owns them: what one call updates.
struct UpdateRange {
  int64_t first_element = 0;    // in the flat buffers
  Tensor weight, master, m, v;  // [n] views, with the padding between parameters, which stays zero
  CTensor grad;
  std::vector<FlatRange> decays;  // elements of the views
};

/// Where masters beside weights and moments are: in memory of the device, or in host memory that the update
/// reads and writes over the GPU's link.
enum class StatePlace { device, host };

/// In what the state is held. Master: the type of fp32 and fp64 weights, which are it; of bf16 weights f32,
/// or u16 for what they lack. optimizer.master = "auto" is u16 on a GPU.
struct StateFormats {
  DType master = DType::f32, moments = DType::f32;
};
StateFormats state_formats(const OptimizerConfig& config, DType weights, Device device);

class Optimizer {
 public:
  /// Masters from the weights. `over` share the state of a unit; they stay in use. `seed` rounds bf16
  /// moments. `tp_rank`: of this rank among those that share the parameters.
  Optimizer(Ctx& c, ParameterStore& parameters, const OptimizerConfig& config, const SumRanks& over,
            uint64_t seed = 0, StatePlace place = StatePlace::device, int tp_rank = 0);

  /// After the gradients of this rank's shards hold the sum over dp: clips, updates the shards, gathers the
  /// weights (not those that are split). `all` has the ranks that train the model, over dp and tp. Returns
  /// the norm before clipping; a non-finite norm changes nothing (the caller stops the run).
  double step(Ctx& c, Comm& all, double lr);

  const std::vector<OptimizerPiece>& pieces() const { return pieces_; }
  /// What this rank owns of parameters that are not trained: weights without state, which checkpoints hold,
  /// too.
  const std::vector<OptimizerPiece>& frozen() const { return frozen_; }
  int tp_rank() const { return tp_rank_; }
  /// Finished updates; restored with the state.
  int64_t count() const { return count_; }
  /// After the pieces (and the weights that masters are the remainder of) were filled from a checkpoint:
  /// weights from masters, on all ranks.
  void restore(Ctx& c, int64_t count);
  /// All weights from their owners, or those that are trained: `step` leaves it to others while values are
  /// split.
  void gather_weights(Ctx& c, const char* what, bool trained = false);
  int64_t state_bytes() const { return memory_.peak_bytes(); }
  int64_t held_bytes() const { return memory_.held_bytes(); }
  /// Where they are: cpu for StatePlace::host.
  Device state_device() const { return memory_.device(); }

 private:
  std::vector<OptimizerPiece> pieces_of(size_t unit) const;
  std::vector<const OptimizerPiece*> in_list_order() const;
  void add_range(Ctx& c, std::span<OptimizerPiece> run);
  void add_frozen(std::span<OptimizerPiece> run);
  Tensor zeros(Ctx& c, int64_t size, DType dtype);

  ParameterStore& parameters_;
  OptimizerConfig config_;
  uint64_t seed_;
  int tp_rank_;
  StateFormats formats_;
  SumRanks over_;
  Arena memory_;
  std::vector<OptimizerPiece> pieces_, frozen_;
  std::vector<UpdateRange> ranges_;
  int64_t count_ = 0;
};

}  // namespace temper
