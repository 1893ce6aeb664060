#pragma once
// Pieces of flat buffers, and how a buffer is shared out among the ranks of an axis.

#include <algorithm>
#include <cstdint>

namespace temper {

/// Elements [begin, end).
struct FlatRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

/// Equal shares of `elements`, cut at multiples of 16; the last ranks may own less, or nothing.
inline FlatRange shard_range(int64_t elements, int rank, int size) {
  const int64_t share = (elements + size - 1) / size;
  const int64_t step = (share + 15) / 16 * 16;
  return {std::min(elements, step * rank), std::min(elements, step * (rank + 1))};
}

/// Tokens of a pack that one of several ranks has: as evenly as they go, in their order.
inline FlatRange token_share(int64_t tokens, int rank, int ranks) {
  return {tokens * rank / ranks, tokens * (rank + 1) / ranks};
}

}  // namespace temper
