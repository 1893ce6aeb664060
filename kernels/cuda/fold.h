#pragma once
// Second stage of gradients that are sums over rows: the partial sums of blocks of rows come together.

#include "src/core/ctx.h"

namespace temper::cuda {

/// dw [width] and partials [count, width].
struct Fold {
  float* dw;
  const float* partials;
  int count;
};

/// In one launch: dw[i] += the partials of column i, ascending within each of 32 chunks of rows, then the
/// chunks ascending.
/// Of `first`, and of `second` where it has a dw.
void fold_partials(Ctx& ctx, int width, const Fold& first, const Fold& second = {});

}  // namespace temper::cuda
