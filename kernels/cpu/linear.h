#pragma once
// The forward dot products behind linear, log-prob and sampling: out[m,n] = sum_k x[m,k] w[n,k], unrounded,
// in the accumulate dtype, by the canonical lanes. One implementation for one row and for thousands: the bits
// of an output depend on its two rows only. x is packed once (accumulate dtype, padded with zeros), unless
// tiles can use it as it is; w is read in place for few rows, and for more where tiles can use it, else
// packed, panel by panel.

#include <functional>

#include "kernels/cpu/linear_tile.h"
#include "src/core/ctx.h"
#include "src/core/parallel.h"

namespace temper::cpu {

/// kBlockColumns columns of w with up to kPanelFeatures features are a panel, which stays in L2 while rows of
/// x pass by, strip by strip; a strip over a block of features stays in L1. Of rows with more features, or of
/// few rows, kBlockRows at most take turns at panels of kBlockFeatures, their lanes in L2 too.
inline constexpr int64_t kBlockRows = 96;
inline constexpr int64_t kBlockColumns = 48;
inline constexpr int64_t kPanelFeatures = 5120;
inline constexpr int64_t kBlockFeatures = 1024;
/// Up to this many rows of x, w is read as stored instead of packed: packing pays when it is read more often.
inline constexpr int64_t kStreamRows = 3 * kMaxTileRows;
inline constexpr int64_t kStreamColumns = 24;
/// Rows that are packed at once, and elements of them: bounds the workspace of long batches, and what every
/// panel reads again from L3.
inline constexpr int64_t kPackedRows = 1024;
inline constexpr int64_t kPackedElements = 5 << 20;

template <class A>
struct PackedRows {
  const A* data;
  int64_t stride;
  int64_t count;
  int64_t features;
  PackedRows rows(int64_t begin, int64_t end) const {
    return {data + begin * stride, stride, end - begin, features};
  }
};

/// Elements of a packed row: whole lanes, and never a multiple of 4 KiB, which would share the sets of the
/// caches.
inline int64_t packed_stride(int64_t features) { return (features + kLanes - 1) / kLanes * kLanes + kLanes; }

/// Rows that a tile can use as they are stored: whole lines of the cache (a load that crosses lines takes
/// twice as long).
template <class A>
bool whole_lines(const A* rows, int64_t features) {
  return features % kLanes == 0 && reinterpret_cast<uintptr_t>(rows) % 64 == 0;
}

template <class S, class A>
void pack_row(A* to, const S* from, int64_t count) {
  const int64_t padded = (count + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = 0; i < count; ++i) to[i] = load(from[i]);
  std::fill(to + count, to + padded, A(0));
}

/// Rows that tiles can use as they are stay where they are.
template <class S>
PackedRows<Accumulate<S>> pack_rows(Ctx& ctx, const S* x, int64_t count, int64_t features) {
  using A = Accumulate<S>;
  if constexpr (std::is_same_v<S, A>)
    if (whole_lines(x, features) && features * static_cast<int64_t>(sizeof(A)) % 4096 != 0)
      return {x, features, count, features};
  const int64_t stride = packed_stride(features);
  A* data = static_cast<A*>(ctx.scratch.allocate(count * stride * static_cast<int64_t>(sizeof(A))));
  parallel_ranges(ctx.threads, count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) pack_row(data + r * stride, x + r * features, features);
  });
  return {data, stride, count, features};
}

/// One piece of arena memory per thread of a parallel_for.
template <class A>
class ThreadBuffers {
 public:
  ThreadBuffers(Ctx& ctx, int64_t elements)
      : team_(ctx.threads.team),
        elements_((elements + 63) / 64 * 64),
        data_(static_cast<A*>(
            ctx.scratch.allocate(ctx.threads.number * elements_ * static_cast<int64_t>(sizeof(A))))) {}
  A* mine() const { return data_ + (team_ ? team_->index() : 0) * elements_; }

 private:
  const ThreadTeam* team_;
  int64_t elements_;
  A* data_;
};

/// Where dot_block leaves its sums: sums[r * stride + c] for all of x; or, with `taken`, for one strip of
/// rows at a time, in the same place, handed over while it is still in L1.
template <class A>
struct BlockOutput {
  A* sums;
  int64_t stride;
  /// (sums, first row, rows, first column, columns); as often as there are strips and panels.
  std::function<void(const A*, int64_t, int64_t, int64_t, int64_t)> taken = nullptr;

  A* strip(int64_t row) const { return taken ? sums : sums + row * stride; }
};

/// Elements of workspace that dot_block needs, and of the sums of a strip.
inline int64_t dot_workspace(int64_t features) {
  return kBlockColumns * packed_stride(std::min(features, kPanelFeatures)) +
         kBlockRows * kBlockColumns * kLanes;
}
inline constexpr int64_t kStripSums = kMaxTileRows * kBlockColumns;

/// All rows of x (at most kBlockRows of more than kPanelFeatures features) against `columns` rows of w, which
/// are contiguous.
template <class S>
void dot_block(const BlockOutput<Accumulate<S>>& out, const PackedRows<Accumulate<S>>& x, const S* w,
               int64_t columns, Accumulate<S>* workspace);

}  // namespace temper::cpu
