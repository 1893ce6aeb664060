// Sums over ranks of parts that lie where others brought them (src/ops/rank_sum.h): bound by memory.

#include "kernels/cuda/rank_sum.h"

namespace temper::cuda {
namespace {

constexpr int kThreads = 256;

template <class P>
struct RankParts {
  const P* of[kMostFlows + 1];
};

template <class S, class P>
__global__ void __launch_bounds__(kThreads)
    sum_ranks_kernel(const __grid_constant__ RankParts<P> parts, RankAdder<S, P> sum, int64_t of_block) {
  begin_kernel();
  const int64_t begin = blockIdx.x * of_block;
  add_range<kThreads>(sum, begin, min(sum.count, begin + of_block), [&](int r) { return parts.of[r]; });
}

}  // namespace

void sum_ranks(Lane& lane, const RankSum& sum, std::span<const void* const> parts) {
  dispatch_rank_sum(sum, static_cast<int>(parts.size()), [&]<class S, class P>(const RankAdder<S, P>& adder) {
    RankParts<P> all{};
    for (size_t r = 0; r < parts.size(); ++r) all.of[r] = static_cast<const P*>(parts[r]);
    constexpr int64_t kOfBlock = int64_t{kThreads} * 64 / sizeof(P);  // four groups of 16 bytes a thread
    launch(lane, sum_ranks_kernel<S, P>, blocks_for(adder.count, kOfBlock), kThreads, 0, all, adder,
           kOfBlock);
  });
}

}  // namespace temper::cuda
