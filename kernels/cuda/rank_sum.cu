// Sums over ranks of parts that lie where others brought them (src/ops/peers/peer_exchange.h): bound by memory.

#include "kernels/cuda/rank_sum.h"

namespace temper::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kThreadBytes = 64;  // of each part, at once

template <class P>
struct RankParts {
  const P* of[kMostFlows + 1];
};

template <class S, class P>
__global__ void __launch_bounds__(kThreads)
    sum_ranks_kernel(const __grid_constant__ RankParts<P> parts, RankAdder<S, P> sum) {
  begin_kernel();
  add_groups<kThreads>(sum, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x),
                       [&](int r) { return parts.of[r]; });
}

}  // namespace

void sum_ranks(Lane& lane, const RankSum& sum, std::span<const void* const> parts) {
  dispatch_rank_sum(sum, static_cast<int>(parts.size()), [&]<class S, class P>(const RankAdder<S, P>& adder) {
    RankParts<P> all{};
    for (size_t r = 0; r < parts.size(); ++r) all.of[r] = static_cast<const P*>(parts[r]);
    launch(lane, sum_ranks_kernel<S, P>, blocks_for(adder.bytes(), kThreads * kThreadBytes), kThreads, 0, all,
           adder);
  });
}

}  // namespace temper::cuda
