#include "src/ops/small_exchange.h"

#include "src/ops/dispatch.h"
#include "src/ops/rank_sum.h"

namespace temper {

namespace {

void check_flows(const Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in) {
  CHECK(lane.device() == Device::cuda, "{} and {} flows without GPUs", out.size(), in.size());
  for (const std::span<const SmallFlow> flows : {out, in})
    CHECK(flows.size() <= kMostFlows, "parcels of {} GPUs, at most {} can exchange them", flows.size(),
          kMostFlows);
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
  check_rank_sum(sum, std::ssize(in) + 1);
  DISPATCH_CUDA(lane, exchange_small_sum, out, in, sum, stop);
}

}  // namespace temper
