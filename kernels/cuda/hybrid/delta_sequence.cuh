#pragma once
// Where the rows of a sequence and a value head lie.

#include "kernels/cuda/hybrid/delta_rule.h"
#include "kernels/cuda/launch.h"
#include "kernels/delta_types.h"

namespace temper::cuda {

/// Rows of one chunk, those from `begin` to `end` of it being new; `r` is the batch's row of place 0.
struct DeltaPiece {
  int begin, end, r;
  TEMPER_DEVICE bool is_new(int place) const { return place >= begin && place < end; }
};
/// The rows that follow `done` ones of `rows`, the first of which has this position.
TEMPER_DEVICE DeltaPiece next_piece(int first, int rows, int done) {
  constexpr int kChunk = static_cast<int>(kDeltaChunk);
  const int begin = (first + done) % kChunk;
  return {begin, min(kChunk, begin + rows - done), done - begin};
}

/// Rows of the batch are counted from the sequence's first one in it, places from the begin of a chunk.
template <class S>
struct DeltaHead {
  const DeltaCall& c;
  int head, key_head, key_dim, value_dim;
  int row, rows;  // of the batch
  int first;      // position of the first
  int tail;

  TEMPER_DEVICE DeltaHead(const DeltaCall& call, int sequence, int value_head)
      : c(call),
        head(value_head),
        key_head(value_head / call.heads.group),
        key_dim(call.heads.key_dim),
        value_dim(call.heads.value_dim),
        row(call.cu[sequence]),
        rows(call.cu[sequence + 1] - row),
        first(call.paged ? call.pages.lengths[sequence] - rows : 0),
        tail(call.paged ? call.pages.tails[sequence] : 0) {}

  TEMPER_DEVICE const S* q(int r) const {
    return static_cast<const S*>(c.qkv) + (row + r) * c.heads.row_width + int64_t{key_head} * key_dim;
  }
  TEMPER_DEVICE const S* k(int r) const { return q(r) + c.heads.key_width; }
  TEMPER_DEVICE const S* v(int r) const {
    return static_cast<const S*>(c.qkv) + (row + r) * c.heads.row_width + 2 * c.heads.key_width +
           int64_t{head} * value_dim;
  }
  TEMPER_DEVICE int64_t gate(int r) const { return int64_t{row + r} * c.heads.value_heads + head; }
  TEMPER_DEVICE S* o(int r) const { return static_cast<S*>(c.o) + gate(r) * value_dim; }

  TEMPER_DEVICE S* tail_key(int place) const {
    return static_cast<S*>(c.pages.keys) + (int64_t{tail} * kDeltaChunk + place) * c.heads.key_width +
           int64_t{key_head} * key_dim;
  }
  TEMPER_DEVICE S* tail_write(int place) const {
    return static_cast<S*>(c.pages.writes) +
           ((int64_t{tail} * kDeltaChunk + place) * c.heads.value_heads + head) * value_dim;
  }
  TEMPER_DEVICE float& tail_decay(int place) const {
    return c.pages.decays[(int64_t{tail} * kDeltaChunk + place) * c.heads.value_heads + head];
  }
  /// Where the write of row r, at this place of its chunk, is kept.
  TEMPER_DEVICE S* kept_write(int r, int place) const {
    return c.paged ? tail_write(place) : static_cast<S*>(c.u) + gate(r) * value_dim;
  }

  TEMPER_DEVICE int state_size() const { return key_dim * value_dim; }
  TEMPER_DEVICE bool has_state() const { return first >= kDeltaChunk; }
  TEMPER_DEVICE float* slot(const int32_t* numbers, int sequence) const {
    return static_cast<float*>(c.pages.states) +
           int64_t{numbers[sequence]} * c.heads.value_heads * state_size();
  }
  /// Planes of a slot, from this head's part on.
  TEMPER_DEVICE uint16_t* high_plane(float* slot) const {
    return reinterpret_cast<uint16_t*>(slot) + int64_t{head} * state_size();
  }
  TEMPER_DEVICE uint16_t* low_plane(float* slot) const {
    return high_plane(slot) + int64_t{c.heads.value_heads} * state_size();
  }
};

}  // namespace temper::cuda
