#include "src/ops/peers/peer_exchange.h"

#include "src/ops/dispatch.h"

namespace temper {

namespace {

void check_flows(const Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in) {
  CHECK(lane.device() == Device::cuda, "{} and {} flows without GPUs", out.size(), in.size());
  for (const std::span<const SmallFlow> flows : {out, in})
    CHECK(flows.size() <= kMostFlows, "parcels of {} GPUs, at most {} can exchange them", flows.size(),
          kMostFlows);
}

/// `sum` of so many ranks is one that kernels add up.
void check_sum(const RankSum& sum, int64_t ranks) {
  CHECK_SHAPE(sum.to, sum.own.size());
  CHECK(sum.own.dtype == sum.to.dtype || sum.own.dtype == accumulate_dtype(sum.to.dtype), "a sum of {} in {}",
        dtype_name(sum.own.dtype), dtype_name(sum.to.dtype));
  CHECK(ranks <= kMostFlows + 1, "parts of {} ranks, at most {} are added", ranks, kMostFlows + 1);
  CHECK(sum.rank >= 0 && sum.rank < ranks, "rank {} of {}", sum.rank, ranks);
}

}  // namespace

void exchange_small(Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in,
                    [[maybe_unused]] const uint32_t* stop) {
  check_flows(lane, out, in);
  DISPATCH_CUDA(lane, exchange_small, out, in, stop);
}

void exchange_small_sum(Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in,
                        const RankSum& sum, [[maybe_unused]] const uint32_t* stop) {
  check_flows(lane, out, in);
  check_sum(sum, std::ssize(in) + 1);
  DISPATCH_CUDA(lane, exchange_small_sum, out, in, sum, stop);
}

void sum_ranks(Lane& lane, const RankSum& sum, std::span<const void* const> parts) {
  CHECK(lane.device() == Device::cuda, "parts of {} ranks without a GPU", parts.size());
  check_sum(sum, std::ssize(parts));
  DISPATCH_CUDA(lane, sum_ranks, sum, parts);
}

}  // namespace temper
