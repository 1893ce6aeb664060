#pragma once
// The self-test of the gated delta rule's kernels on tensor cores.

#include <functional>

#include "kernels/cuda/hybrid/delta_rule.h"

namespace temper::cuda {

/// What is compared with the plain kernel.
struct DeltaKernels {
  std::function<void(Ctx&, const DeltaCall&, bool skip_single_rows)> scan = delta_rule_scan;
  std::function<void(Ctx&, const DeltaCall&, bool single_rows_only)> decode = delta_rule_decode;
};

/// Do they give random rows its bits: packed, and over pages in pieces and row by row, with as many sequences
/// as each form of the scan takes? In memory of its own, on the lane, for which it waits.
bool has_bits_of_plain(Lane& lane, const DeltaHeads& heads, const DeltaKernels& kernels = {});

/// Whether the kernels on tensor cores take these heads, and have passed.
bool may_use_delta_kernels(Ctx& ctx, DType type, const DeltaHeads& heads);

}  // namespace temper::cuda
