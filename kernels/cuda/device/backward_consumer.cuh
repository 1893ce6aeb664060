#pragma once
// The one-pass attention backward: the warpgroups that compute dK and dV (attention_backward_sm90.cu).

#include "kernels/cuda/device/backward_barriers.cuh"

namespace temper::cuda::backward {

/// One of the two warpgroups of 64 keys. A thread holds keys g and g + 8 of its warp's 16.
template <int D>
struct Consumer {
  using SM = Smem<D>;
  static constexpr int R = SM::kRows;
  const Arguments& args;
  static constexpr uint32_t smem = kSharedBase;
  int thread;  // of the block; everything else about the thread is computed from it where it is needed

  float x[R / 2], dk[D / 2], dv[D / 2];  // x: S^T, then dP^T, then dS^T
  uint32_t p[R / 4];
  uint32_t c = 0;  // steps so far: the stage of Q and dO, the buffer of dS, and their phases
  static_assert(SM::kStages == 2 && SM::kDsBuffers == 2);

  TEMPER_DEVICE int tid() const { return anew(thread); }
  TEMPER_DEVICE int lane() const { return tid() & 31; }
  TEMPER_DEVICE int warp() const { return tid() >> 5 & 3; }
  TEMPER_DEVICE int wg() const { return (tid() >> 7) - 1; }
  TEMPER_DEVICE int stage() const { return anew(c) & 1; }
  TEMPER_DEVICE int phase() const { return anew(c) >> 1 & 1; }
  TEMPER_DEVICE void issue(float (&to)[R / 2], int keys, int queries) {
    const uint64_t a = smem_descriptor(smem + keys + wg() * 8192, 16, 1024);
    const uint64_t b = smem_descriptor(smem + queries, 16, 1024) + stage() * (SM::kQ >> 4);
    wg_fence();
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++)
      wgmma_ss(to, a + (((kk >> 2) * 16384 + (kk & 3) * 32) >> 4),
               b + (((kk >> 2) * R * 128 + (kk & 3) * 32) >> 4), kk > 0);
    wg_commit();
  }
  /// dV += P^T dO or dK += dS^T Q, the left factor from p.
  TEMPER_DEVICE void issue_rs(float (&to)[D / 2], int queries, int keep) {
    const uint64_t b = smem_descriptor(smem + queries, R * 128, 1024) + stage() * (SM::kQ >> 4);
    wg_fence();
#pragma unroll
    for (int kk = 0; kk < R / 16; kk++) wgmma_rs_transposed(to, p + 4 * kk, b + kk * 128, kk > 0 ? 1 : keep);
    wg_commit();
  }
  static TEMPER_DEVICE uint32_t pack(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
  }
  static TEMPER_DEVICE float exp2a(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  /// p as 64 keys x R queries in rows of keys.
  TEMPER_DEVICE void store_keys(uint32_t base) {
    const int id = tid();
    const uint32_t row = (id >> 5) * 16 - 64 + (id & 15);
    const uint32_t at = base + row * 128 + (((id >> 4 & 1) ^ (id & 7)) << 4);
#pragma unroll
    for (int i = 0; i < R / 8; i += 2)
      stsm4((at ^ ((i & 7) << 4)) + (i >> 3) * 16384, p[2 * i], p[2 * i + 1], p[2 * i + 2], p[2 * i + 3]);
  }

  /// Scores in x to probabilities in p.
  TEMPER_DEVICE void probabilities(bool diagonal) {
    if (diagonal) {
      const int id = tid();
      const int key = (SM::kRatio == 2 ? 0 : wg() * 64) + (id >> 5 & 3) * 16 + (id >> 2 & 7) - 2 * (id & 3);
#pragma unroll
      for (int i = 0; i < R / 2; i++)
        if (key + 8 * (i >> 1 & 1) > (i >> 2) * 8 + (i & 1)) x[i] = __int_as_float(0xff800000);
    }
    const uint32_t stats = smem + SM::kStats + stage() * (R * 8) + (tid() & 3) * 8;
#pragma unroll
    for (int i = 0; i < R / 8; i++) {
      const float2 l = lds2(stats + i * 32);
      p[2 * i] = pack(exp2a(__fmaf_rn(x[4 * i], args.c, l.x)), exp2a(__fmaf_rn(x[4 * i + 1], args.c, l.y)));
      p[2 * i + 1] =
          pack(exp2a(__fmaf_rn(x[4 * i + 2], args.c, l.x)), exp2a(__fmaf_rn(x[4 * i + 3], args.c, l.y)));
    }
  }

  /// From P of a step (in p) to P of the next, if there is one. x: dP, dS, then S of the next step. p: P, dS,
  /// then P of the next. No product is in flight where the loop closes: ptxas would serialise them all.
  template <bool kMore>
  TEMPER_DEVICE void step(int keep, bool next_diagonal) {
    mbar_wait(Bars<D>::do_full(stage()), phase());
    issue(x, SM::kV, SM::kDo);
    issue_rs(dv, SM::kDo, keep);
    const uint32_t stats = smem + SM::kStats + stage() * (R * 8) + R * 4 + (tid() & 3) * 8;
    constexpr int kEarly = 8;  // pairs of delta that are read while dP is computed
    float2 early[kEarly];
#pragma unroll
    for (int i = 0; i < kEarly; i++) {
      early[i] = lds2(stats + i * 32);
      asm volatile("" : "+f"(early[i].x), "+f"(early[i].y));
    }
    wg_wait<1>();
    pin(x);
#pragma unroll
    for (int i = 0; i < R / 8; i++) {
      const float2 l = i < kEarly ? early[i % kEarly] : lds2(stats + i * 32);
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const uint32_t both = p[2 * i + e];
        float &lo = x[4 * i + 2 * e], &hi = x[4 * i + 2 * e + 1];
        lo = __fmul_rn(__uint_as_float(both << 16), __fsub_rn(lo, l.x));
        hi = __fmul_rn(__uint_as_float(both & 0xffff0000u), __fsub_rn(hi, l.y));
      }
    }
    wg_wait<0>();  // dV
    pin(p);
    __syncwarp();  // all lanes have read their deltas
    if (lane() == 0) mbar_arrive(Bars<D>::do_empty(stage()));
#pragma unroll
    for (int i = 0; i < R / 4; i++) p[i] = pack(x[2 * i], x[2 * i + 1]);
    const int buffer = stage();
    mbar_wait(Bars<D>::ds_empty(buffer), phase() ^ 1);
    store_keys(smem + SM::kDsAt + buffer * SM::kDs);
    issue_rs(dk, SM::kQs, keep);
    c++;
    if constexpr (kMore) {
      mbar_wait(Bars<D>::q_full(stage()), phase());
      issue(x, SM::kK, SM::kQs);
    }
    fence_async();
    __syncwarp();
    if (lane() == 0) mbar_arrive(Bars<D>::ds_full(buffer));
    if constexpr (kMore)
      wg_wait<1>();  // dK
    else
      wg_wait<0>();
    pin(p);
    if (lane() == 0) mbar_arrive(Bars<D>::q_empty(stage() ^ 1));
    if constexpr (kMore) {
      wg_wait<0>();
      pin(x);
      probabilities(next_diagonal);
    }
  }

  /// A step whose queries see none of these keys.
  TEMPER_DEVICE void skip() {
    using B = Bars<D>;
    mbar_wait(B::q_full(stage()), phase());
    mbar_wait(B::do_full(stage()), phase());
    mbar_wait(B::ds_empty(stage()), phase() ^ 1);
    if (lane() == 0) {
      mbar_arrive(B::ds_full(stage()));
      mbar_arrive(B::q_empty(stage()));
      mbar_arrive(B::do_empty(stage()));
    }
    __syncwarp();
    c++;
  }

  /// Through shared memory, so that rows leave in whole 16-byte chunks.
  TEMPER_DEVICE void write(const float (&x)[D / 2], float factor, bf* to, int64_t width, int left) {
    __syncwarp();
    const int lane = this->lane(), g = lane >> 2, t = lane & 3;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint8_t* const stage = shared + SM::kV + ((tid() >> 5) - 4) * 2048;  // this warp's 16 rows of V
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      uint8_t* at = stage + (i >> 3) * 16384 + g * 128 + (((i & 7) ^ g) << 4) + t * 4;
      *reinterpret_cast<uint32_t*>(at) = pack(__fmul_rn(x[4 * i], factor), __fmul_rn(x[4 * i + 1], factor));
      *reinterpret_cast<uint32_t*>(at + 1024) =
          pack(__fmul_rn(x[4 * i + 2], factor), __fmul_rn(x[4 * i + 3], factor));
    }
    __syncwarp();
    constexpr int kChunks = D / 8, kRowsAtOnce = 32 / kChunks;
#pragma unroll
    for (int pass = 0; pass < 16 / kRowsAtOnce; pass++) {
      const int r = pass * kRowsAtOnce + lane / kChunks, chunk = lane % kChunks;
      const uint4 v = *reinterpret_cast<const uint4*>(stage + (chunk >> 3) * 16384 + r * 128 +
                                                      (((chunk & 7) ^ (r & 7)) << 4));
      if (r < left) *reinterpret_cast<uint4*>(to + r * width + chunk * 8) = v;
    }
  }

  __device__ void run() {
    const Feed<D> feed{lane()};
    for (int n = 0, item; (item = feed.fetch(n)) >= 0; n++) {
      int left;  // steps
      {
        const Work<SM::kRatio> w(args, item);
        left = (w.last - w.first + 1 - (SM::kRatio == 2 ? wg() : 0)) * args.group;
      }
      mbar_wait(Bars<D>::kv_full(0), n & 1);
      if (left > 0) {
        mbar_wait(Bars<D>::q_full(stage()), phase());
        issue(x, SM::kK, SM::kQs);
        wg_wait<0>();
        pin(x);
        probabilities(left <= args.group);
      }
      mbar_wait(Bars<D>::kv_full(1), n & 1);
      if (left > 0) {
        int keep = 0;
        for (; left > 1; left--, keep = 1) step<true>(keep, left - 1 <= args.group);
        step<false>(keep, false);
        pin(dk);
        pin(dv);
      }
      asm volatile("" : "+r"(item));  // decoded again: nothing of it stays in registers over the loop
      const Work<SM::kRatio> w(args, item);
      if (SM::kRatio == 2 && wg() == 1)
        for (int i = 0; i < args.group; i++) skip();
      if (lane() == 0) mbar_arrive(Bars<D>::kv_empty(0));
      const int key = w.tile.block * kKeys + (tid() >> 5) * 16 - 64, rows = w.tile.len - key;
      const int64_t width = int64_t{args.q_heads + 2 * args.kv_heads} * D;
      bf* to = args.dqkv + (w.tile.row + key) * width + (args.q_heads + w.kv_head) * D;
      bar_sync(1 + wg(), 128);  // all warps have read their rows of V
      if (rows > 0) {
        write(dk, args.scale, to, width, rows);
        write(dv, 1.f, to + args.kv_heads * D, width, rows);
      }
      fence_async();
      __syncwarp();
      if (lane() == 0) mbar_arrive(Bars<D>::kv_empty(1));
    }
  }
};

}  // namespace temper::cuda::backward
