#pragma once
// Rotary positions of one head.

#include "kernels/cpu/canonical.h"

namespace temper::cpu {

/// Turns one head; kSign -1 turns it back.
template <int kSign, class S, class A = Accumulate<S>>
inline void rotate_head(S* head, const A* cosine, const A* sine, int64_t half) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const A low = load(head[i]), high = load(head[i + half]);
    const A c = cosine[i], s = kSign < 0 ? -sine[i] : sine[i];
    head[i] = store<S>(low * c - high * s);
    head[i + half] = store<S>(high * c + low * s);
  }
}

}  // namespace temper::cpu
