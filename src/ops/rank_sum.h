#pragma once
// Sums over ranks of what other GPUs have brought to places of this one, added where it lies.

#include <span>

#include "kernels/types.h"
#include "src/core/lane.h"

namespace temper {

/// The bits of sum_in_order (ops/elementwise.h). On a lane of a GPU; `parts`: where that of each rank lies,
/// aligned to 16 bytes, of the dtype of sum.own, which is that of rank `sum.rank`.
void sum_ranks(Lane& lane, const RankSum& sum, std::span<const void* const> parts);

/// `sum` of so many ranks is one that kernels add up.
void check_rank_sum(const RankSum& sum, int64_t ranks);

}  // namespace temper
