#pragma once
// How a packed batch is cut for attention: its sequences, the tiles of query rows that are worked on
// independently, and keys and values packed into groups of 16 positions in the accumulate dtype.

#include <limits>
#include <vector>

#include "kernels/cpu/attention_rows.h"
#include "src/core/arena.h"

namespace temper::cpu {

/// Rows of the batch that belong to one sequence: its last `rows` of `length` positions.
struct SequenceRows {
  int64_t row = 0;  // first row in the batch
  int64_t rows = 0;
  int64_t length = 0;
  int64_t first_position() const { return length - rows; }
  int64_t row_of(int64_t position) const { return row + position - first_position(); }
};

/// Sequences that are whole in the batch.
std::vector<SequenceRows> packed_sequences(const CTensor& cu_seqlens, int64_t tokens);
/// Sequences in pages; checks that lengths, page table and pages fit together.
std::vector<SequenceRows> cached_sequences(const CTensor& cu_seqlens, int64_t tokens, const PagedKv& kv);

/// One independent piece of work: some consecutive positions of a sequence, for one kv head.
struct PositionTile {
  int64_t sequence = 0, kv_head = 0;
  int64_t first = 0, positions = 0;
};

/// The query rows of a tile whose first position is row `row` of the batch; lse is left out.
template <class S>
QueryRows<S> query_rows(S* out, const S* qkv, const AttentionShape& shape, int64_t row,
                        const PositionTile& tile) {
  const int64_t heads = shape.q_heads / shape.kv_heads, column = tile.kv_head * heads * shape.head_dim;
  return {.q = qkv + row * shape.qkv_width() + column,
          .out = out + row * shape.q_width() + column,
          .q_row = shape.qkv_width(),
          .out_row = shape.q_width(),
          .heads = heads,
          .head_dim = shape.head_dim,
          .first = tile.first,
          .positions = tile.positions};
}

/// All tiles of a batch, cut at absolute multiples of `positions`; within a sequence and head the longest
/// come first.
std::vector<PositionTile> position_tiles(const std::vector<SequenceRows>& sequences, int64_t kv_heads,
                                         int64_t positions);

/// Where the groups of each sequence begin when they lie one after another; the last element is their number.
std::vector<int64_t> group_starts(const std::vector<SequenceRows>& sequences);

/// to[d, i] = from[i, d] for `count` rows of stride `row`; the other positions of the group are zero.
template <class S, class A>
void pack_columns(A* to, const S* from, int64_t row, int64_t count, int64_t head_dim) {
  for (int64_t d = 0; d < head_dim; ++d)
    for (int64_t i = 0; i < kKeyGroup; ++i)
      to[d * kKeyGroup + i] = i < count ? load(from[i * row + d]) : A(0);
}

/// to[i, d] = from[i, d] for `count` rows of stride `row`; what is missing of 16 rows and of whole panels is
/// zero.
template <class S, class A>
void pack_rows_padded(A* to, const S* from, int64_t row, int64_t count, int64_t head_dim) {
  const int64_t width = padded_width(head_dim);
  std::fill_n(to, kKeyGroup * width, A(0));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t d = 0; d < head_dim; ++d) to[i * width + d] = load(from[i * row + d]);
}

/// Arena memory for every group of positions of every kv head.
template <class A>
struct GroupArray {
  A* data;  // [Hkv, groups, group_size]
  int64_t groups, group_size;

  GroupArray(Arena& arena, int64_t kv_heads, int64_t num_groups, int64_t size)
      : data(static_cast<A*>(arena.allocate(kv_heads * num_groups * size * static_cast<int64_t>(sizeof(A))))),
        groups(num_groups),
        group_size(size) {}
  A* at(int64_t kv_head, int64_t g) const { return data + (kv_head * groups + g) * group_size; }
};

/// Keys and values in packed form.
template <class A>
struct PackedKeys {
  int64_t head_dim;
  GroupArray<A> keys;    // groups of [dh, 16]
  GroupArray<A> values;  // groups of [16, width]

  PackedKeys(Arena& arena, int64_t kv_heads, int64_t groups, int64_t dim)
      : head_dim(dim),
        keys(arena, kv_heads, groups, kKeyGroup * dim),
        values(arena, kv_heads, groups, kKeyGroup * padded_width(dim)) {}
  /// The groups from g on as one page.
  KeyGroups<A> from(int64_t kv_head, int64_t g) const {
    static constexpr int32_t kOnlyPage = 0;
    return {.keys = keys.at(kv_head, g),
            .values = values.at(kv_head, g),
            .pages = &kOnlyPage,
            .page_groups = std::numeric_limits<int64_t>::max(),
            .key_group = keys.group_size,
            .value_row = padded_width(head_dim)};
  }
};

}  // namespace temper::cpu
