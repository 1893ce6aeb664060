#include "src/ops/small_exchange.h"

#include "src/ops/dispatch.h"

namespace temper {

void exchange_small(Lane& lane, std::span<const SmallFlow> out, std::span<const SmallFlow> in,
                    [[maybe_unused]] const uint32_t* stop) {
  CHECK(lane.device() == Device::cuda, "{} and {} flows without GPUs", out.size(), in.size());
  for (const std::span<const SmallFlow> flows : {out, in})
    CHECK(flows.size() <= kMostFlows, "parcels of {} GPUs, at most {} can exchange them", flows.size(),
          kMostFlows);
  DISPATCH_CUDA(lane, exchange_small, out, in, stop);
}

}  // namespace temper
