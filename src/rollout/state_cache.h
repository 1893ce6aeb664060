#pragma once
// What running sequences keep of gated delta nets, beside pages of keys and values: a tail each, and the
// state before it in a slot that others may read, too (kernels/delta_types.h). A slot is written only where
// a chunk becomes full, by the single sequence that has it: one that shares its slot, or that a step under
// way reads, goes on in another, and lets the old one go when that step is through. So as many slots as
// tails are enough, and a sequence that finds none free waits for a step.

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/delta_types.h"
#include "src/core/arena.h"
#include "src/core/lane.h"
#include "src/models/model.h"

namespace temper {

/// What a model keeps of a sequence in its gated delta nets.
struct StateShape {
  int64_t layers = 0;
  DeltaShape heads;
  int64_t taps = 1;
  DType storage = DType::f32;

  explicit StateShape(const Model& model);
  /// What a rank has with these parts of the model, as one of so many that share its heads.
  StateShape(const ModelConfig& config, const LayerRanges& parts, int tp_ranks, DType type);
  int64_t window_size() const { return (taps - 1) * heads.qkv_width(); }
  int64_t slot_size() const { return heads.value_width() * heads.key_dim; }
  /// A tail and a slot.
  int64_t sequence_bytes() const { return tail_bytes() + slot_bytes(); }
  int64_t tail_bytes() const;
  int64_t slot_bytes() const { return layers * slot_size() * dtype_size(accumulate_dtype(storage)); }
};

/// What a sequence has of a StateCache; -1: nothing.
struct HeldState {
  int32_t tail = -1;
  int32_t from = -1;  // the slot that its rows under way read
  int32_t slot = -1;  // the state before its last chunk, when they are through
  int32_t left = -1;  // a slot that a step under way reads and its later rows do not
  bool empty() const { return tail < 0; }
};

class StateCache {
 public:
  /// For so many sequences at once. `lane` and `poison` as of the pages' cache.
  StateCache(const StateShape& shape, int64_t sequences, bool poison, Lane& lane);
  ~StateCache() { lane_.settle(); }
  StateCache(const StateCache&) = delete;
  StateCache& operator=(const StateCache&) = delete;

  int64_t sequences() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_tails() const { return static_cast<int64_t>(tails_.size()); }
  int64_t free_slots() const { return static_cast<int64_t>(slots_.size()); }
  int64_t held_bytes() const { return memory_.held_bytes(); }
  /// A tail outside of the pool that padding rows may write to (on a GPU only).
  int32_t scratch_tail() const { return static_cast<int32_t>(sequences()); }
  /// As of the pages' cache.
  void suspend() { memory_.suspend(lane_); }
  void resume() { memory_.resume(); }

  /// Whether rows [cached, cached + rows) of a sequence have a slot to write to, where they need one. A free
  /// tail is the caller's to look for.
  bool can_advance(const HeldState& s, int64_t cached, int64_t rows) const;
  /// Takes what these rows need; a sequence without a state gets one.
  void advance(HeldState& s, int64_t cached, int64_t rows);
  /// No step under way has rows of the sequence.
  void settle(HeldState& s);
  /// `to` goes on from where `from` is; there is a free tail.
  void fork(const HeldState& from, HeldState& to);
  void drop(HeldState& s);

  /// View for the kernels; the numbers are the batch's, [S] i32 each.
  DeltaPages view(CTensor tails, CTensor from, CTensor to, CTensor lengths) const;

 private:
  std::array<Tensor, 4> tail_pools() const { return {windows_, keys_, writes_, decays_}; }
  bool writes_elsewhere(const HeldState& s) const;
  int32_t take_slot();
  void release_slot(int32_t slot);

  Lane& lane_;
  bool poison_;
  Arena memory_;
  Tensor windows_, keys_, writes_, decays_, states_;  // as in DeltaPages
  std::vector<int32_t> references_;                   // of slots
  std::vector<int32_t> tails_, slots_;                // that are free: stacks
};

}  // namespace temper
