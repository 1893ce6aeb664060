#pragma once
// Packed trajectories. A sequence of n tokens gives n - 1 input rows (the last token predicts nothing) and
// one target row, which goes through the head, per counted response token: row index = position of the token
// before it. Empty responses and one-token sequences are legal and may give no rows at all.

#include <cstdint>
#include <span>
#include <vector>

#include "src/core/ctx.h"
#include "src/core/flat_range.h"
#include "src/nn/batch.h"
#include "src/rl/algorithm.h"
#include "src/rl/types.h"

namespace temper {

struct Microbatch {
  std::vector<int32_t> tokens, positions;  // [T]
  std::vector<int32_t> cu_seqlens{0};      // [S+1]
  std::vector<int32_t> rows, targets;      // [n] row that predicts the target, and the target id
  std::vector<int32_t> sequence, offset;   // [n] which sequence of the list, which response token
  LossInputs inputs;                       // [n] each, and the borders of the sequences
  FlatRange own;                           // tokens of this rank: all, or its share
  std::vector<FlatRange> targets_of;       // of every rank: the targets that its tokens predict
  FlatRange own_targets;                   // of this one
  std::vector<int32_t> own_rows;           // of these, among the own tokens
  const RouterNotes* routers = nullptr;    // Batch::routers

  /// Context parallel: this one of `ranks` has its share of the tokens, and each at least one.
  void keep_share(int rank, int ranks);
  int64_t num_tokens() const { return own.size(); }
  StreamRows stream() const { return {num_tokens(), true}; }
  /// The first of the ranks counts them.
  int64_t sequences_here() const { return own.begin == 0 ? std::ssize(inputs.sequence_begin) - 1 : 0; }
  Batch batch(Ctx& c) const;
  /// The own targets: their ids, and their rows among the own tokens.
  CTensor target_ids(Ctx& c) const;
  CTensor target_rows(Ctx& c) const;
};

/// Input rows of a trajectory.
int64_t packed_length(const Trajectory& t);
int64_t packed_length(const Group& group);

/// Packs `sequences` (indices into `all`) in the given order, with targets for the response tokens that count
/// (all of them where there is no mask). One rank has it all.
Microbatch pack(std::span<const Trajectory* const> all, std::span<const int32_t> sequences);

/// Fills inputs (old and reference log-probs, advantage, omega) of the targets; counts are those of the
/// update. A log-prob that is not known is NaN: the trainer puts its own there.
void fill_loss_inputs(Microbatch& mb, std::span<const Trajectory* const> all, Aggregation mode,
                      const UpdateCounts& counts);

}  // namespace temper
