#pragma once
// The one-pass attention backward: every role but the consumers (attention_backward_sm90.cu).

#include "kernels/cuda/device/backward_barriers.cuh"

namespace temper::cuda::backward {

template <int D>
struct Producer {
  using SM = Smem<D>;
  const Arguments& args;
  const CUtensorMap *q_map, *kv_map, *do_map;
  static constexpr Bars<D> bars{};
  static constexpr uint32_t smem = kSharedBase;
  int lane;
  uint32_t tails = 0, kv_tails = 0;

  /// Zeroes the rows from `from` on of a tile of `rows` rows.
  TEMPER_DEVICE void clear(uint32_t dst, int from, int rows) {
    for (int r = from + (lane >> 3); r < rows; r += 4)
#pragma unroll
      for (int half = 0; half < D / 64; half++)
        asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(dst + half * rows * 128 + r * 128 +
                                                                   (lane & 7) * 16),
                     "r"(0)
                     : "memory");
  }
  TEMPER_DEVICE void publish(uint32_t bar) {
    fence_async();
    __syncwarp();
    if (lane == 0) mbar_arrive(bar);
  }
  /// Q or dO of a step to `to`, the statistics of its rows to `stats`. A tail arrives apart, at `tail_bar`: its
  /// rows are cleared before `full` is published, which the statistics complete as ever.
  TEMPER_DEVICE void load_rows(const CUtensorMap* map, uint32_t to, int row, int head, const float* from,
                               uint32_t stats, uint32_t full, bool tail, uint32_t tail_bar) {
    if (lane != 0) return;
    if (tail) {
      mbar_expect(tail_bar, SM::kQ);
      mbar_expect_more(full, SM::kRows * 4);
    } else {
      mbar_expect(full, SM::kQ + SM::kRows * 4);
    }
    tma_4d(to, map, tail ? tail_bar : full, 0, row, 0, head);
    bulk_load(stats, from, SM::kRows * 4, full);
  }
  /// K (v = 0) or V (v = 1). Rows beyond the sequence become zero: they may hold NaN, and 0 * NaN is NaN.
  TEMPER_DEVICE void load_keys(const Work<SM::kRatio>& w, int v, uint32_t phase) {
    mbar_wait(bars.kv_empty(v), phase ^ 1);
    const bool tail = w.tile.len - w.tile.block * kKeys < kKeys;
    const uint32_t bar = tail ? bars.kv_tail(v) : bars.kv_full(v);
    if (lane == 0) {
      mbar_expect(bar, SM::kKv);
      tma_4d(smem + (v ? SM::kV : SM::kK), kv_map, bar, 0, w.tile.row + w.tile.block * kKeys, 0,
             args.q_heads + (v ? args.kv_heads : 0) + w.kv_head);
    }
  }
  TEMPER_DEVICE void clear_keys(const Work<SM::kRatio>& w) {
    const int left = w.tile.len - w.tile.block * kKeys;
    if (left >= kKeys) return;
    for (int v = 0; v < 2; v++) {
      mbar_wait(bars.kv_tail(v), kv_tails & 1);
      clear(smem + (v ? SM::kV : SM::kK), left, kKeys);
      publish(bars.kv_full(v));
    }
    kv_tails++;
  }
  __device__ void run(volatile int* slots) {
    const int items = args.list->num_tiles * args.kv_heads;
    Ring r;
    int item = 0;
    if (lane == 0) item = atomicAdd(&args.list->next, 1);
    item = __shfl_sync(~0u, item, 0);
    for (int n = 0;; n++) {
      mbar_wait(bars.slot_empty(n & 1), (n >> 1 & 1) ^ 1);
      if (lane == 0) {
        slots[n & 1] = item < items ? item : -1;
        mbar_arrive(bars.slot_full(n & 1));
      }
      if (item >= items) return;
      const Work<SM::kRatio> w(args, item);
      int loaded = 0, next = 0;
      for (int m = w.last; m >= w.first; m--) {
        const int row = w.tile.row + m * SM::kRows, left = w.tile.len - m * SM::kRows;
        const bool tail = left < SM::kRows;
        int head = w.kv_head * w.group, at = head * args.padded + w.tile.pad + m * SM::kRows;
        for (int h = w.group; h > 0; h--, head++, at += args.padded) {
          // claimed a step ahead: the answer arrives meanwhile, and nobody waits long for an item not yet
          // begun
          if (m == w.first && h == 1 && lane == 0) next = atomicAdd(&args.list->next, 1);
          // dO becomes free before Q does, and is needed later
          const float *delta = args.delta + at, *lse = args.lse + at;
          const uint32_t o = smem + SM::kDo + r.i * SM::kQ, q = smem + SM::kQs + r.i * SM::kQ,
                         stats = smem + SM::kStats + r.i * SM::kRows * 8;
          mbar_wait(bars.do_empty(r.i), r.phase ^ 1);
          load_rows(do_map, o, row, head, delta, stats + SM::kRows * 4, bars.do_full(r.i), tail, bars.tail(1));
          mbar_wait(bars.q_empty(r.i), r.phase ^ 1);
          load_rows(q_map, q, row, head, lse, stats, bars.q_full(r.i), tail, bars.tail(0));
          if (tail) {
            mbar_wait(bars.tail(0), tails & 1);
            clear(q, left, SM::kRows);
            publish(bars.q_full(r.i));
            mbar_wait(bars.tail(1), tails++ & 1);
            clear(o, left, SM::kRows);
            publish(bars.do_full(r.i));
          }
          r.template next<SM::kStages>();
          if (loaded < 2) {
            load_keys(w, loaded, n & 1);
            if (loaded == 1) clear_keys(w);
            loaded++;
          }
        }
      }
      if (loaded == 1) load_keys(w, 1, n & 1), clear_keys(w);
      item = __shfl_sync(~0u, next, 0);
    }
  }
};

/// The warp that waits for the turns of the steps on the diagonal, whose dQ leaves the chip as bf16.
template <int D>
__device__ void wait_for_turns(const Arguments& args, const Feed<D>& feed) {
  using SM = Smem<D>;
  using B = Bars<D>;
  Ring r;
  for (int n = 0, item; (item = feed.fetch(n)) >= 0; n++) {
    const Work<SM::kRatio> w(args, item);
    const int blocks = args.padded / SM::kRows;
    for (int m = min(w.last, w.first + SM::kRatio - 1); m >= w.first; m--)
      for (int h = 0; h < w.group; h++) {
        mbar_wait(B::turn_empty(r.i), r.phase ^ 1);
        if (feed.lane == 0) {
          if (w.tile.block > 0) {
            const int* flag =
                args.flags + int64_t{w.kv_head * w.group + h} * blocks + w.tile.pad / SM::kRows + m;
            while (load_acquire(flag) < w.tile.block) {
            }
          }
          mbar_arrive(B::turn_full(r.i));
        }
        __syncwarp();
        r.next<2>();
      }
  }
}

/// One of two warps that take every second step each: waits for the turn of this block of keys, adds the
/// step's 32 KB to the sum in global memory, and hands the turn on when the addition is complete.
template <int D>
__device__ void add_sums(const Arguments& args, const Feed<D>& feed, int which) {
  using SM = Smem<D>;
  using B = Bars<D>;
  uint32_t phase = 0, count = 0;
  for (int n = 0, item; (item = feed.fetch(n)) >= 0; n++) {
    const Work<SM::kRatio> w(args, item);
    const int blocks = args.padded / SM::kRows;
    for (int m = w.last; m >= w.first + SM::kRatio; m--)
      for (int h = 0; h < w.group; h++) {
        if ((count++ & 1) != which) continue;
        if (feed.lane == 0) {
          const int64_t at = int64_t{w.kv_head * w.group + h} * blocks + w.tile.pad / SM::kRows + m;
          if (w.tile.block > 0) {
            while (load_acquire(args.flags + at) < w.tile.block) {
            }
            asm volatile("fence.proxy.async.global;" ::: "memory");
          }
#pragma unroll
          for (int part = 0; part < 2; part++) {
            const uint32_t from = kSharedBase + SM::kSums + (2 * which + part) * SM::kPart;
            mbar_wait(B::sum_full(2 * which + part), phase);
            if (w.tile.block > 0)
              bulk_reduce(args.dq + at * 8192 + part * 4096, from, SM::kPart);
            else
              bulk_store(args.dq + at * 8192 + part * 4096, from, SM::kPart);
          }
          bulk_commit();
          bulk_wait_read<0>();
          mbar_arrive(B::sum_empty(2 * which));
          mbar_arrive(B::sum_empty(2 * which + 1));
          bulk_wait<0>();
          store_release(args.flags + at, w.tile.block + 1);
        }
        __syncwarp();
        phase ^= 1;
      }
  }
}

/// The dQ warpgroup: every step in two parts of 64 rows x 64 columns.
template <int D>
struct DqGroup {
  using SM = Smem<D>;
  const Arguments& args;
  Feed<D> feed;
  static constexpr uint32_t smem = kSharedBase;
  int warp, lane;
  Ring r{}, turns{}, sums{};  // buffers of dS; turns; buffers of sums

  /// Words 0..3 of the four lanes of a quad, transposed.
  TEMPER_DEVICE void transpose(uint32_t (&w)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      const uint32_t got = __shfl_xor_sync(~0u, lane & 1 ? w[k] : w[k + 1], 1);
      w[k] = lane & 1 ? got : w[k], w[k + 1] = lane & 1 ? w[k + 1] : got;
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const uint32_t got = __shfl_xor_sync(~0u, lane & 2 ? w[k] : w[k + 2], 2);
      w[k] = lane & 2 ? got : w[k], w[k + 2] = lane & 2 ? w[k + 2] : got;
    }
  }

  /// The finished 64 x 64 part as bf16, in whole 16-byte chunks. `left`: rows that exist from this lane's on.
  TEMPER_DEVICE void write(const float (&x)[32], bf* to, int left, int64_t width) const {
#pragma unroll
    for (int e = 0; e < 2; e++)
#pragma unroll
      for (int j = 0; j < 8; j += 4) {
        uint32_t w[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
          asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
              : "=r"(w[k])
              : "f"(__fmul_rn(x[4 * (j + k) + 2 * e + 1], args.scale)),
                "f"(__fmul_rn(x[4 * (j + k) + 2 * e], args.scale)));
        transpose(w);
        if (left > 8 * e)
          *reinterpret_cast<uint4*>(to + e * 8 * width + j * 8) = make_uint4(w[0], w[1], w[2], w[3]);
      }
  }

  /// kLast: this block of keys is the last of these queries: the sum so far is the start of the accumulator.
  template <bool kHalf, bool kLast>
  TEMPER_DEVICE void step(const Work<SM::kRatio>& w, int m, int h) {
    float x[32];
    const int head = w.kv_head * w.group + h;
    const bool first = w.tile.block == 0;
    float* acc = args.dq + (int64_t{head} * (args.padded / SM::kRows) + w.tile.pad / SM::kRows + m) * 8192 +
                 (warp * 32 + lane) * 4;
    if (kLast) mbar_wait(Bars<D>::turn_full(turns.i), turns.phase);
#pragma unroll
    for (int part = 0; part < 2; part++) {
      if (kLast && !first) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
          const float4 y = load4(acc + part * 4096 + j * 512);
          x[4 * j] = y.x, x[4 * j + 1] = y.y, x[4 * j + 2] = y.z, x[4 * j + 3] = y.w;
        }
      }
      if (part == 0) {
        mbar_wait(Bars<D>::ds_full(r.i), r.phase);
      }
      const uint64_t a = smem_descriptor(
          smem + SM::kDsAt + r.i * SM::kDs + (SM::kRatio == 2 ? 0 : part * 16384), 16384, 1024);
      const uint64_t b = smem_descriptor(smem + SM::kK + (SM::kRatio == 2 ? part * 16384 : 0), 16384, 1024);
      wg_fence();
#pragma unroll
      for (int kk = 0; kk < (kHalf ? 4 : 8); kk++)
        wgmma_tn(x, a + kk * 128, b + kk * 128, kk > 0 ? 1 : kLast && !first);
      wg_commit();
      wg_wait<0>();
      pin(x);
      if (part == 1 && lane == 0) mbar_arrive(Bars<D>::ds_empty(r.i));
      if (kLast) {
        const int u = m * SM::kRows + warp * 16 + (lane >> 2) + (SM::kRatio == 2 ? 0 : part * 64);
        const int64_t width = int64_t{args.q_heads + 2 * args.kv_heads} * D;
        bf* to = args.dqkv + (w.tile.row + u) * width + head * D + (SM::kRatio == 2 ? part * 64 : 0) +
                 (lane & 3) * 8;
        write(x, to, w.tile.len - u, width);
      } else {
        mbar_wait(Bars<D>::sum_empty(2 * sums.i + part), sums.phase ^ 1);
        const uint32_t at = smem + SM::kSums + (2 * sums.i + part) * SM::kPart + (warp * 32 + lane) * 16;
#pragma unroll
        for (int j = 0; j < 8; j++) sts4(at + j * 2048, x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]);
        fence_async();
        __syncwarp();
        if (lane == 0) mbar_arrive(Bars<D>::sum_full(2 * sums.i + part));
      }
    }
    if (kLast) {
      __syncwarp();
      if (lane == 0) mbar_arrive(Bars<D>::turn_empty(turns.i));
      turns.template next<2>();
    } else {
      sums.template next<2>();
    }
    r.template next<SM::kDsBuffers>();
  }

  __device__ void run() {
    for (int n = 0, item; (item = feed.fetch(n)) >= 0; n++) {
      const Work<SM::kRatio> w(args, item);
      mbar_wait(Bars<D>::kv_full(0), n & 1);
      int m = w.last;
      for (; m >= w.first + SM::kRatio; m--)
        for (int h = 0; h < w.group; h++) step<false, false>(w, m, h);
      for (; m > w.first; m--)
        for (int h = 0; h < w.group; h++) step<false, true>(w, m, h);
      // keys 64 .. 127 see nothing of the first query block of 64
      for (int h = 0; h < w.group; h++) step<SM::kRatio == 2, true>(w, m, h);
      if (lane == 0) mbar_arrive(Bars<D>::kv_empty(0));
    }
  }
};

}  // namespace temper::cuda::backward
