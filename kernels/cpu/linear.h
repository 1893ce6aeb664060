#pragma once
// The forward dot products behind linear, log-prob and sampling: out[m,n] = sum_k x[m,k] w[n,k], unrounded,
// in the accumulate dtype, by the canonical lanes. One implementation for one row and for thousands: the bits
// of an output depend on its two rows only. x is packed once (accumulate dtype, padded with zeros); w is read
// in place for few rows and where it is stored so that a tile can use it, else packed by blocks.

#include <omp.h>

#include "kernels/cpu/linear_tile.h"
#include "src/core/ctx.h"
#include "src/core/parallel.h"

namespace temper::cpu {

/// Rows of x that one call of dot_block takes at most, and the columns and features it works on at a time. A
/// tile's rows over one block of features stay in L1; the columns of a block and its lanes stay in L2.
inline constexpr int64_t kBlockRows = 96;
inline constexpr int64_t kBlockColumns = 48;
inline constexpr int64_t kBlockFeatures = 1024;
/// Up to this many rows of x, w is read as stored instead of packed: packing pays when it is read more often.
inline constexpr int64_t kStreamRows = 3 * kMaxTileRows;
inline constexpr int64_t kStreamColumns = 24;
/// Rows that are packed at once: bounds the workspace of long batches.
inline constexpr int64_t kPackedRows = 1024;

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

template <class S, class A>
void pack_row(A* to, const S* from, int64_t count) {
  const int64_t padded = (count + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = 0; i < count; ++i) to[i] = load(from[i]);
  std::fill(to + count, to + padded, A(0));
}

template <class S>
PackedRows<Accumulate<S>> pack_rows(Ctx& ctx, const S* x, int64_t count, int64_t features) {
  using A = Accumulate<S>;
  const int64_t stride = packed_stride(features);
  A* data = static_cast<A*>(ctx.arena.allocate(count * stride * static_cast<int64_t>(sizeof(A))));
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
      : threads_(ctx.threads),
        elements_((elements + 63) / 64 * 64),
        data_(static_cast<A*>(
            ctx.arena.allocate(std::max(1, threads_) * elements_ * static_cast<int64_t>(sizeof(A))))) {}
  A* mine() const { return data_ + (threads_ <= 1 ? 0 : omp_get_thread_num()) * elements_; }

 private:
  int threads_;
  int64_t elements_;
  A* data_;
};

/// Elements of workspace that dot_block needs.
inline int64_t dot_workspace(int64_t features) {
  return kBlockColumns * packed_stride(std::min(features, kBlockFeatures)) +
         kBlockRows * kBlockColumns * kLanes;
}

/// out[r * out_stride + c] for all rows of x (at most kBlockRows) and `columns` rows of w, which are
/// contiguous.
template <class S>
void dot_block(Accumulate<S>* out, int64_t out_stride, const PackedRows<Accumulate<S>>& x, const S* w,
               int64_t columns, Accumulate<S>* workspace);

}  // namespace temper::cpu
