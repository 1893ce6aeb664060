#pragma once
// What the row-wise kernels share: how work is cut over threads, checks of indices, sums along a row in the
// canonical lanes, and sums over rows in two stages. Nothing here depends on the number of threads.

#include <algorithm>

#include "kernels/cpu/canonical.h"
#include "src/core/ctx.h"
#include "src/core/parallel.h"

namespace temper::cpu {

/// Rows (or elements: width 1) of one piece of work: about 16,384 elements.
inline int64_t row_grain(int64_t width) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width)); }

/// Every index lies in [0, limit). Outside of parallel loops, which no exception may leave.
inline void check_indices(const int32_t* index, int64_t count, int64_t limit, const char* name) {
  for (int64_t i = 0; i < count; ++i)
    CHECK(index[i] >= 0 && index[i] < limit, "{} {} is {}, allowed are 0 to {}", name, i, index[i],
          limit - 1);
}

/// Sum over [begin, end), element i in lane (i - begin) mod 16: lane = term(lane, i), ascending, from zero.
template <class A, class Term>
inline A lane_sum(int64_t begin, int64_t end, Term&& term) {
  A lanes[kLanes] = {};
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
#pragma omp simd
    for (int j = 0; j < kLanes; ++j) lanes[j] = term(lanes[j], i + j);
  }
  for (int j = 0; i + j < end; ++j) lanes[j] = term(lanes[j], i + j);
  return tree_sum(lanes);
}

/// Rows of one partial sum of a gradient over rows.
inline constexpr int64_t kPartialRows = 64;

/// Stage one: body(begin, end, partial) for each kPartialRows rows adds to its zeroed partial [width].
/// Stage two: dw[i] += partials, ascending, as one sum.
template <class A, class Body>
void sum_over_rows(Ctx& ctx, A* dw, int64_t num_rows, int64_t width, Body&& body) {
  ArenaScope scope(ctx.scratch);
  const int64_t count = (num_rows + kPartialRows - 1) / kPartialRows;
  A* partials = static_cast<A*>(ctx.scratch.allocate(count * width * static_cast<int64_t>(sizeof(A))));
  parallel_ranges(ctx.threads, num_rows, kPartialRows, [&](int64_t begin, int64_t end) {
    A* partial = partials + begin / kPartialRows * width;
    std::fill(partial, partial + width, A(0));
    body(begin, end, partial);
  });
  parallel_ranges(ctx.threads, width, 256, [&](int64_t begin, int64_t end) {
    A sums[256] = {};
    for (int64_t k = 0; k < count; ++k)
      for (int64_t i = begin; i < end; ++i) sums[i - begin] += partials[k * width + i];
    for (int64_t i = begin; i < end; ++i) dw[i] += sums[i - begin];
  });
}

}  // namespace temper::cpu
