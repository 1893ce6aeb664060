#pragma once
// What the low-rank adapters of a product y = x W^T take beside its linear products (src/ops/linear.h):
//   u = x A^T    z = u V^T in A, never rounded    y' = round(fma(scale, z, y))
// where V is block diagonal: the outputs of a block, which are those of one Hugging Face module, read that
// block's columns of u. A is the accumulate dtype; scale is rounded to it.

#include "src/ops/dispatch.h"

namespace temper {

/// w = V: w[to_i + j, i r + k] = b[from_i + j, k] in block i, 0 elsewhere
/// w: [N, n r]   b: [M, r], of w's dtype   n: number of blocks
void adapter_weights(Ctx& c, Tensor w, CTensor b, const AdapterBlocks& blocks);

/// db[from_i + j, k] += round(scale * dw[to_i + j, i r + k]); as the first write, = instead
/// db: [M, r] in A   dw: [N, n r] in A
void adapter_gradient(Ctx& c, Tensor db, CTensor dw, double scale, const AdapterBlocks& blocks,
                      GradWrite write);

/// y = round(fma(scale, z, y))      z: in A, of y's shape; y: a storage type, or in A
void add_scaled(Ctx& c, Tensor y, CTensor z, double scale);

/// y = round(scale * z)      z: in A, of y's shape
void round_scaled(Ctx& c, Tensor y, CTensor z, double scale);

}  // namespace temper
