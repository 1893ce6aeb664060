#pragma once
// The one forward attention of the CPU backend: rows of one sequence and kv head against keys and values that
// lie in groups of 16 positions, packed or in pages. Training, scoring, prefill and decode all call attend,
// so a row has the same bits in each. The arithmetic is the section "Attention" of NUMERICS.md; masked keys
// take no part at all, so that not even an infinite value of a later position reaches a row.

#include <algorithm>

#include "kernels/cpu/canonical.h"
#include "kernels/types.h"

namespace temper::cpu {

inline constexpr int64_t kKeyBlock = 128;   // keys between two updates of the running maximum
inline constexpr int64_t kKeySplit = 1024;  // keys of one independent (m, l, o)
inline constexpr int64_t kBlockGroups = kKeyBlock / kKeyGroup;
inline constexpr int64_t kQueryTile = 64;  // query rows that share a pass over the keys

inline int64_t num_groups(int64_t positions) { return (positions + kKeyGroup - 1) / kKeyGroup; }

/// Elements of a value row in packed form: whole panels of 16.
inline int64_t padded_width(int64_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }

/// Consecutive positions of one tile when `heads` query heads share a kv head: a power of two, so that tiles
/// cut at its multiples never cross a block of keys.
inline int64_t positions_per_tile(int64_t heads) {
  int64_t positions = 1;
  while (2 * positions * heads <= kQueryTile) positions *= 2;
  return positions;
}

/// Keys and values of one sequence and kv head. Group g holds positions 16g .. 16g+15 in page pages[g /
/// page_groups]: keys [dh, 16], values [16, value_row].
template <class W>
struct KeyGroups {
  const W* keys = nullptr;    // of page 0
  const W* values = nullptr;  // of page 0
  const int32_t* pages = nullptr;
  int64_t page_groups = 1;
  int64_t page_stride = 0;
  int64_t key_group = 0;  // dh * 16
  int64_t value_row = 0;

  int64_t key_offset(int64_t g) const {
    return pages[g / page_groups] * page_stride + g % page_groups * key_group;
  }
  int64_t value_offset(int64_t g) const {
    return pages[g / page_groups] * page_stride + g % page_groups * kKeyGroup * value_row;
  }
};

/// Query rows of `positions` consecutive positions from `first` on, inside one block of kKeyBlock: query head
/// j of the i-th is q + i * q_row + j * head_dim; out likewise; its lse is lse[j * lse_row + i].
template <class S>
struct QueryRows {
  const S* q = nullptr;
  S* out = nullptr;
  Accumulate<S>* lse = nullptr;  // may be null
  int64_t q_row = 0, out_row = 0, lse_row = 0;
  int64_t heads = 0, head_dim = 0;
  int64_t first = 0, positions = 0;
};

/// Elements of workspace that attend needs.
int64_t attend_workspace(int64_t heads, int64_t head_dim);

/// W: storage type of the keys and values, S or Accumulate<S>.
template <class S, class W>
void attend(const QueryRows<S>& rows, const KeyGroups<W>& keys, double scale, Accumulate<S>* workspace);

}  // namespace temper::cpu
