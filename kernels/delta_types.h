#pragma once
// Plain structs of gated delta nets that ops and kernels share.

#include "src/core/tensor.h"

namespace temper {

/// Heads of a gated delta net. A projected row is [q: Hk dk | k: Hk dk | v: Hv dv | z: Hv dv | b: Hv | a:
/// Hv]; value head h reads key head h / (Hv/Hk).
struct DeltaShape {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t key_width() const { return key_heads * key_dim; }
  int64_t value_width() const { return value_heads * value_dim; }
  int64_t qkv_width() const { return 2 * key_width() + value_width(); }
  int64_t projected_width() const { return gates_column() + 2 * value_heads; }
  int64_t gates_column() const { return qkv_width() + value_width(); }
  int64_t heads_per_key() const { return value_heads / key_heads; }
};

/// Rows of a chunk: those from each multiple of it on, counted from the first row of their own sequence.
inline constexpr int64_t kDeltaChunk = 64;
/// Rows of a chunk that see each other's writes before they are rounded.
inline constexpr int64_t kDeltaBlock = 16;

/// Rows that a convolution reads, at most.
inline constexpr int64_t kMostDeltaTaps = 8;

/// What S running sequences keep of all gated delta nets: of each a tail (what the rows of its last chunk and
/// the convolution read), and the state before that chunk, in a slot that nothing writes to until the chunk
/// is full: sequences may have one together.
struct DeltaPages {
  Tensor windows;    // [L, tails, (K-1) * qkv width] storage: the last rows before the convolution
  Tensor keys;       // [L, tails, kDeltaChunk * Hk dk] storage
  Tensor writes;     // [L, tails, kDeltaChunk * Hv dv] storage
  Tensor decays;     // [L, tails, kDeltaChunk * Hv] accumulate dtype
  Tensor states;     // [L, slots, Hv * dk * dv] accumulate dtype
  CTensor tails;     // [S] i32
  CTensor from, to;  // [S] i32: the slot that is read, and the one that is written where a chunk becomes full
  CTensor lengths;   // [S] i32: rows of the sequence, those of this batch too
};

}  // namespace temper
