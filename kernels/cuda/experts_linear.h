#pragma once
// Grouped products: that of a linear layer for the rows of each expert with its block of weights, by one
// launch over all of them. The rows of an expert are found on the GPU, so the host waits for no counts. Each
// output has the bits of the plain chain over the rows of its expert alone (kernels/cuda/NUMERICS.md).

#include "kernels/cuda/libraries.h"

namespace temper::cuda {

/// The rows of expert e are [offsets[e], offsets[e + 1]) of `all.x`.
struct ExpertProduct {
  Product all;  // forward, input gradient: M rows of all experts, w the blocks of all, below each other
                // weight gradient: K rows of all experts, y the blocks [M, N] of all
  const int32_t* offsets;  // [experts + 1], on the GPU; the last is the number of rows
  int experts;

  int64_t rows() const { return all.kind == ProductKind::weight_gradient ? all.K : all.M; }
};

/// Any grouped product, by the fastest kernel of its class.
void multiply_experts(Ctx& ctx, const ExpertProduct& p);

// ---- the kernels behind it

/// bf16 and fp32, any shape; the reference of the others.
void multiply_experts_plain(Lane& lane, const ExpertProduct& p);
/// bf16 (a weight gradient: to fp32) where is_wgmma_expert_product, with rows. `few_rows`: a forward by tiles
/// of 64 rows, for experts with few each; the same bits.
void multiply_experts_wgmma(const Libraries& libraries, const ExpertProduct& p, bool few_rows);
/// Can its tensor copies address the product? Nothing here depends on the number of rows.
bool is_wgmma_expert_product(const ExpertProduct& p);

}  // namespace temper::cuda
