#pragma once
// Softmax of a router's logits, by whatever reads them, with the same bits.

#include <algorithm>

#include "kernels/cpu/row_loops.h"

namespace temper::cpu {

/// The largest and the sum of e^(u - largest), in the canonical lanes.
template <class A>
struct Softmax {
  A largest, sum;
  Softmax(const A* u, int64_t count) : largest(u[0]) {
    for (int64_t i = 1; i < count; ++i) largest = std::max(largest, u[i]);
    sum = lane_sum<A>(0, count, [&](A lane, int64_t i) { return lane + exponential(u[i] - largest); });
  }
  A of(A u) const { return exponential(u - largest) / sum; }
};

}  // namespace temper::cpu
