#pragma once
// Between GPUs that reach each other's memory: small parcels, and sums over ranks of what has come.
// Parcels go by one kernel: half of its blocks write what it sends, piece by piece, into the inboxes of the
// others and say so, half wait for what it gets and copy it to where it belongs. Pieces are counted on the
// GPU, so that a graph may hold it. A call of one side may be several of the other. For small parcels: large
// ones take the blocks for long.

#include <span>

#include "kernels/types.h"
#include "src/core/lane.h"

namespace temper {

/// On a lane of a GPU; one flow of each direction for a peer, at most kMostFlows. `stop`: where kernels see
/// it; not 0: nobody is waited for any longer.
void exchange_small(Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in,
                    const uint32_t* stop);

/// The same, where of what comes the sum alone is wanted. `in`: a flow of each other rank, in their order,
/// without data, which brings a parcel of the size of `sum.own`. The blocks that take add pieces where they
/// lie: one launch, and less memory to go through, than to copy them first.
void exchange_small_sum(Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in,
                        const RankSum& sum, const uint32_t* stop);

/// The bits of sum_in_order (ops/elementwise.h) of parts that lie where others brought them. On a lane of a
/// GPU; `parts`: where that of each rank lies, aligned to 16 bytes, of the dtype of sum.own, which is that of
/// rank `sum.rank`.
void sum_ranks(Lane& lane, const RankSum& sum, std::span<const void* const> parts);

}  // namespace temper
