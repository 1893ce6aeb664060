#include "src/ops/rank_sum.h"

#include "src/ops/dispatch.h"

namespace temper {

void check_rank_sum(const RankSum& sum, int64_t ranks) {
  CHECK_SHAPE(sum.to, sum.own.size());
  CHECK(sum.own.dtype == sum.to.dtype || sum.own.dtype == accumulate_dtype(sum.to.dtype), "a sum of {} in {}",
        dtype_name(sum.own.dtype), dtype_name(sum.to.dtype));
  CHECK(ranks <= kMostFlows + 1, "parts of {} ranks, at most {} are added", ranks, kMostFlows + 1);
  CHECK(sum.rank >= 0 && sum.rank < ranks, "rank {} of {}", sum.rank, ranks);
}

void sum_ranks(Lane& lane, const RankSum& sum, std::span<const void* const> parts) {
  CHECK(lane.device() == Device::cuda, "parts of {} ranks without a GPU", parts.size());
  check_rank_sum(sum, std::ssize(parts));
  DISPATCH_CUDA(lane, sum_ranks, sum, parts);
}

}  // namespace temper
