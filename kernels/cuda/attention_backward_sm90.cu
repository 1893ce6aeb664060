// Backward of packed causal attention in one pass of five products, deterministic (NUMERICS.md). A block of
// threads takes 128 keys of one kv head and walks the query blocks of its sequence from the last to the
// diagonal, all query heads of the group at each: dK and dV stay in registers. Four warpgroups:
//   0: warps for TMA, for waiting on turns, for adding sums to memory;
//   1, 2: S^T, dP^T, dV, dK of 64 keys each; they leave dS^T in shared memory;
//   3: dQ = dS K of the step, added to fp32 sums in global memory in ascending order of the key blocks (a
//      counter per query block and head says whose turn it is); the last key block writes bf16 dQ itself.
// An item only waits for items that were handed out before it (see list_kernel), so no wait lasts forever,
// however few blocks of threads are on the chip.

#include "kernels/cuda/attention_backward_lists.cuh"
#include "kernels/cuda/device/backward_consumer.cuh"
#include "kernels/cuda/device/backward_roles.cuh"

namespace temper::cuda {
namespace backward {
namespace {

// 2 * 208 + 64 + 32 = 512: all registers of a multiprocessor
constexpr int kConsumerRegisters = 208, kDqRegisters = 64, kProducerRegisters = 32;

template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap kv_map,
                    const __grid_constant__ CUtensorMap do_map, const __grid_constant__ Arguments args) {
  begin_kernel();
  using SM = Smem<D>;
  extern __shared__ __align__(1024) uint8_t smem[];
  volatile int* slots = reinterpret_cast<volatile int*>(smem + SM::kBars + Bars<D>::kSlots);
  const int group = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) {
    if (smem_u32(smem) != kSharedBase) __trap();
    Bars<D>::init();
    tma_prefetch_map(&q_map);
    tma_prefetch_map(&kv_map);
    tma_prefetch_map(&do_map);
  }
  __syncthreads();
  const Feed<D> feed{lane};
  if (group == 0) {
    reg_dec<kProducerRegisters>();
    if (warp == 0)
      Producer<D>{args, &q_map, &kv_map, &do_map, lane}.run(slots);
    else if (warp == 1)
      wait_for_turns<D>(args, feed);
    else
      add_sums<D>(args, feed, warp - 2);
  } else if (group == 3) {
    reg_dec<kDqRegisters>();
    DqGroup<D>{args, feed, warp, lane}.run();
  } else {
    reg_inc<kConsumerRegisters>();
    Consumer<D> consumer{args, static_cast<int>(threadIdx.x)};
    consumer.run();
  }
}

// ---- launch

template <int D>
void run(Ctx& ctx, const AttentionBackwardCall& a) {
  using SM = Smem<D>;
  const Libraries& libraries = libraries_of(ctx);
  static_assert(kKeys == kBackwardKeys && SM::kRows == backward_queries(D));
  const int most_tiles = a.T / kKeys + std::min(a.S, a.T);
  ArenaScope scope(ctx.scratch);
  auto* tiles = allocate<Tile>(ctx.scratch, most_tiles);
  auto* list = allocate<List>(ctx.scratch, 1);
  const BackwardSums sums = attention_backward_one_pass_scratch(ctx.scratch, a.T, a.S, a.q_heads, D);
  const auto padded = static_cast<int>(sums.padded);
  auto *lse = sums.lse.as<float>(), *delta = sums.delta.as<float>();
  auto* flags = sums.flags.as<int>();
  launch(ctx.lane, list_kernel, 1, kListThreads, 0, tiles, list, a, libraries.multiprocessors());
  launch(ctx.lane, prepare_kernel<D, SM::kRows>, padded / kPrepareRows, kPrepareThreads,
         static_cast<size_t>(a.q_heads * kSumStride) * sizeof(float), a, padded, lse, delta, flags);
  const CUtensorMap q = head_map<D>(libraries, a.qkv, a.T, a.row_width(), a.q_heads, SM::kRows),
                    kv = head_map<D>(libraries, a.qkv, a.T, a.row_width(), a.q_heads + 2 * a.kv_heads, kKeys),
                    dout = head_map<D>(libraries, a.dout, a.T, int64_t{a.q_heads} * D, a.q_heads, SM::kRows);
  const Arguments args{.dqkv = static_cast<bf*>(a.dqkv),
                       .tiles = tiles,
                       .list = list,
                       .lse = lse,
                       .delta = delta,
                       .dq = sums.dq.as<float>(),
                       .flags = flags,
                       .q_heads = a.q_heads,
                       .kv_heads = a.kv_heads,
                       .group = a.group(),
                       .padded = padded,
                       .c = static_cast<float>(a.scale * 1.4426950408889634),
                       .scale = a.scale};
  allow_shared_memory(backward_kernel<D>, SM::kBytes);
  const int64_t most_items = int64_t{most_tiles} * a.kv_heads;
  launch(ctx.lane, backward_kernel<D>,
         static_cast<int>(std::min<int64_t>(libraries.multiprocessors(), most_items)), kThreads, SM::kBytes,
         q, kv, dout, args);
}

}  // namespace
}  // namespace backward

void attention_backward_one_pass(Ctx& ctx, const AttentionBackwardCall& a) {
  CHECK(a.T <= kMostBackwardRows, "{} packed rows, at most {}", a.T, kMostBackwardRows);
  if (a.T == 0) return;
  if (a.head_dim == 128)
    backward::run<128>(ctx, a);
  else
    backward::run<64>(ctx, a);
}

}  // namespace temper::cuda
