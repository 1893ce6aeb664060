#pragma once
// The arithmetic that the kernels of the CUDA backend share; kernels/cuda/NUMERICS.md describes it.
// Only where the numbers live (registers, shared memory, which warp) may differ between kernels. Compiled
// with
// --fmad=false: a fused multiply-add is one where it is written as one.

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/types.h"

namespace temper::cuda::canonical {

#define TEMPER_DEVICE __device__ __forceinline__

TEMPER_DEVICE float neg_inf() { return __int_as_float(0xff800000); }
TEMPER_DEVICE float load(float x) { return x; }
TEMPER_DEVICE float load(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class S>
TEMPER_DEVICE S store(float x);
template <>
TEMPER_DEVICE float store<float>(float x) {
  return x;
}
template <>
TEMPER_DEVICE __nv_bfloat16 store<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// ---- attention. State of one query row within a split of keys: mc = running maximum of s, times c, rounded
// once; l[4] = partial row sums by (column mod 8) / 2; o[dh] = fp32 accumulators. c = scale * log2(e) in
// fp32.

inline constexpr int kKeyBlock = 128;  // keys of a block; blocks start at multiples of 128
inline constexpr int kSplit = 1024;    // keys of a split

TEMPER_DEVICE float exp2a(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Rounding is monotone, max(rn(a*c), rn(b*c)) == rn(max(a,b)*c): the scaled maximum is the only state needed.
TEMPER_DEVICE float new_max(float mc, float block_max_s, float c) {
  return fmaxf(mc, __fmul_rn(block_max_s, c));
}
// A row with no key yet: exponents of -inf, not NaN.
TEMPER_DEVICE float base(float mc) { return mc == neg_inf() ? 0.f : mc; }
TEMPER_DEVICE float prob(float s, float c, float base) { return exp2a(__fmaf_rn(s, c, -base)); }
// Both operands are rounded products: an unchanged maximum gives exactly 1, so masked blocks are no-ops.
TEMPER_DEVICE float decay(float mc_old, float base_new) { return exp2a(__fsub_rn(mc_old, base_new)); }
// Row sum: b = ((0+p0)+p1)+... over the partial's 32 columns of the block, ascending; then once per block.
TEMPER_DEVICE float add_p(float b, float p) { return __fadd_rn(b, p); }
TEMPER_DEVICE float add_block(float l, float decay, float b) { return __fmaf_rn(l, decay, b); }
TEMPER_DEVICE float row_sum(float l0, float l1, float l2, float l3) {
  return __fadd_rn(__fadd_rn(l0, l1), __fadd_rn(l2, l3));
}
// The same sum where the four partials lie in the four lanes of a quad.
TEMPER_DEVICE float quad_sum(float l) {
  l = __fadd_rn(l, __shfl_xor_sync(~0u, l, 1));
  return __fadd_rn(l, __shfl_xor_sync(~0u, l, 2));
}
TEMPER_DEVICE float rescale(float o, float decay) { return __fmul_rn(o, decay); }
TEMPER_DEVICE uint32_t pack(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
// Split s into the running result, ascending; the first split is taken as it is (the same bits).
struct Merge {
  float mc, a, b;
};
TEMPER_DEVICE Merge merge(float mc, float mc_s) {
  const float m = fmaxf(mc, mc_s), x = base(m);
  return {m, decay(mc, x), decay(mc_s, x)};
}
TEMPER_DEVICE float merged(Merge w, float x, float x_s) {  // for o and for l
  return __fmaf_rn(x_s, w.b, __fmul_rn(x, w.a));
}
// The end of a row. The + 0 turns -0 into +0, so that a no-op block on a -0 accumulator cannot show.
TEMPER_DEVICE float inverse(float l) { return l > 0.f ? __frcp_rn(l) : 0.f; }
TEMPER_DEVICE float finish(float o, float inv) { return __fmaf_rn(o, inv, 0.f); }
TEMPER_DEVICE float attention_lse(float mc, float l) {
  return __fmul_rn(__fadd_rn(mc, log2f(l)), 0.693147182f);
}

// ---- norm. The row in groups of 8 elements; group g belongs to thread g mod 256, which adds its squares
// ascending from zero; then lanes of a warp by butterfly, then the 8 warps ascending. A width below 2,048
// leaves threads with zero, so one warp alone gives the same bits for rows of up to 256 elements.

inline constexpr int kNormThreads = 256, kNormGroup = 8;

TEMPER_DEVICE float add_square(float sum, float x) { return __fmaf_rn(x, x, sum); }
TEMPER_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int w = 16; w > 0; w /= 2) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, w));
  return x;
}
/// Sum over the block's kNormThreads threads; every thread gets it. `partial` is shared memory for 8 floats.
TEMPER_DEVICE float block_sum(float x, float* partial) {
  x = warp_sum(x);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = partial[0];
#pragma unroll
  for (int w = 1; w < kNormThreads / 32; ++w) sum = __fadd_rn(sum, partial[w]);
  return sum;
}
TEMPER_DEVICE float rms_scale(float squares, int width, float eps) {
  const float mean = __fdiv_rn(squares, static_cast<float>(width));
  return __frcp_rn(__fsqrt_rn(__fadd_rn(mean, eps)));
}
template <class S>
TEMPER_DEVICE S norm_value(S x, float scale, S w) {
  return store<S>(__fmul_rn(load(w), load(store<S>(__fmul_rn(load(x), scale)))));
}
struct PlainWeight {
  template <class S>
  TEMPER_DEVICE static S value(S x, float scale, S w) {
    return norm_value(x, scale, w);
  }
  TEMPER_DEVICE static float of(float w) { return w; }
};

// Backward of a row: g = dy w, xh = x r, the sum of g xh as that of squares above, mean = sum / width.
TEMPER_DEVICE float add_norm_dot(float sum, float dy, float w, float xh) {
  return __fmaf_rn(__fmul_rn(dy, w), xh, sum);
}
TEMPER_DEVICE float norm_gradient(float dy, float w, float xh, float mean, float r) {
  return __fmul_rn(r, __fsub_rn(__fmul_rn(dy, w), __fmul_rn(xh, mean)));
}

// ---- rope: each product rounded. Backward: the same with -s.
TEMPER_DEVICE float rope_low(float low, float high, float c, float s) {
  return __fsub_rn(__fmul_rn(low, c), __fmul_rn(high, s));
}
TEMPER_DEVICE float rope_high(float low, float high, float c, float s) {
  return __fadd_rn(__fmul_rn(high, c), __fmul_rn(low, s));
}

// ---- SwiGLU: (g / (1 + e^-g)) * u, rounded by the caller.
TEMPER_DEVICE float swiglu(float g, float u) { return __fmul_rn(__fdiv_rn(g, __fadd_rn(1.f, expf(-g))), u); }

struct SwigluGradient {
  float gate, up;
};
TEMPER_DEVICE SwigluGradient swiglu_gradient(float da, float g, float u) {
  const float s = __frcp_rn(__fadd_rn(1.f, expf(-g)));
  const float slope = __fmul_rn(s, __fadd_rn(1.f, __fmul_rn(g, __fsub_rn(1.f, s))));
  return {__fmul_rn(__fmul_rn(da, u), slope), __fmul_rn(da, __fmul_rn(g, s))};
}

// ---- head. Chunks of 2,048 vocabulary rows; thread i of 256 takes the rows 4i..4i+3 and 1024+4i..4i+3 of
// the chunk, ascending from zero; then block_sum. Chunks merge ascending, the first is copied.

inline constexpr int kVocabularyChunk = 2048;

struct ChunkStats {
  float max, sum, weighted;  // of t: m, sum e^(t-m), sum e^(t-m) t
};
TEMPER_DEVICE float tempered(float z, float inverse_temperature) { return __fmul_rn(z, inverse_temperature); }
TEMPER_DEVICE void add_logit(ChunkStats& s, float t) {
  const float e = expf(__fsub_rn(t, s.max));
  s.sum = __fadd_rn(s.sum, e);
  s.weighted = __fmaf_rn(e, t, s.weighted);
}
struct MergeFactors {
  float max, a, b;
};
TEMPER_DEVICE MergeFactors merge_factors(float max_a, float max_b) {
  const float m = fmaxf(max_a, max_b);
  return {m, expf(__fsub_rn(max_a, m)), expf(__fsub_rn(max_b, m))};
}
TEMPER_DEVICE ChunkStats merge(const MergeFactors& f, const ChunkStats& a, const ChunkStats& b) {
  return {f.max, __fmaf_rn(b.sum, f.b, __fmul_rn(a.sum, f.a)),
          __fmaf_rn(b.weighted, f.b, __fmul_rn(a.weighted, f.a))};
}
TEMPER_DEVICE float lse(const ChunkStats& s) { return __fadd_rn(s.max, logf(s.sum)); }
TEMPER_DEVICE float entropy(const ChunkStats& s) { return __fsub_rn(lse(s), __fdiv_rn(s.weighted, s.sum)); }

// ---- edits of a logit before it is drawn from: src/ops/sample.h, each step rounded, as the CPU backend
// does.
TEMPER_DEVICE float edited_logit(float z, const LogitEdit& edit, const SampleOptions& o) {
  z = __fadd_rn(z, static_cast<float>(edit.bias));
  const auto repetition = static_cast<float>(o.repetition_penalty);
  if (edit.seen) z = z > 0.f ? __fdiv_rn(z, repetition) : __fmul_rn(z, repetition);
  if (edit.count == 0) return z;
  z = __fsub_rn(z, __fmul_rn(static_cast<float>(o.frequency_penalty), static_cast<float>(edit.count)));
  return __fsub_rn(z, static_cast<float>(o.presence_penalty));
}

// ---- sampling score t - plog(E(x)): the functions of src/core/rng.h, operation by operation.

TEMPER_DEVICE float plog_poly(float f, float e) {
  const float c[9] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                      -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                      2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
  float q = c[0];
#pragma unroll
  for (int i = 1; i < 9; ++i) q = __fmaf_rn(q, f, c[i]);
  const float z = __fmul_rn(f, f), w = __fmul_rn(z, f);
  const float y = __fadd_rn(f, __fmaf_rn(q, w, __fmaf_rn(e, -2.12194440e-4f, __fmul_rn(-0.5f, z))));
  return __fmaf_rn(e, 0.693359375f, y);
}
TEMPER_DEVICE float plog(float x) {
  const uint32_t i = __float_as_uint(x) - 0x3F3504F3u;
  const float e = static_cast<float>(static_cast<int32_t>(i) >> 23);
  const float m = __uint_as_float((i & 0x7FFFFFu) + 0x3F3504F3u);
  return plog_poly(__fsub_rn(m, 1.f), e);
}
TEMPER_DEVICE float exponential_of(uint32_t x) {
  const uint32_t k = x < 0x80000000u ? x : ~x;
  const float u = __fmul_rn(static_cast<float>(2 * k + 1), 0x1p-33f);
  if (x < 0x80000000u) return -plog(u);
  const float h = __fsub_rn(1.f, u);
  return __float_as_uint(h) >= 0x3F3504F3u ? -plog_poly(-u, 0.f) : -plog(h);
}
/// Philox4x32-10.
TEMPER_DEVICE uint4 philox(uint4 c, uint64_t seed) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.x, p1 = uint64_t{0xCD9E8D57u} * c.z;
    c = make_uint4(static_cast<uint32_t>(p1 >> 32) ^ c.y ^ k0, static_cast<uint32_t>(p1),
                   static_cast<uint32_t>(p0 >> 32) ^ c.w ^ k1, static_cast<uint32_t>(p0));
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}
/// Words of ids 4*v4 .. 4*v4+3.
TEMPER_DEVICE uint4 random_words(const SampleKey& key, uint32_t v4, uint32_t position) {
  const uint32_t p = static_cast<uint32_t>(key.data_position & 0xfffff);
  return philox(make_uint4(v4, position, (p << 12) | static_cast<uint32_t>(key.sample),
                           static_cast<uint32_t>(key.data_position >> 20)),
                key.seed);
}
/// moment_words of src/core/rng.h.
TEMPER_DEVICE uint4 moment_words(uint64_t seed, uint32_t update, uint64_t n4) {
  constexpr uint32_t kStream = static_cast<uint32_t>(RngStream::moments) << 24;
  return philox(make_uint4(static_cast<uint32_t>(n4), static_cast<uint32_t>(n4 >> 32), update, kStream),
                seed);
}
TEMPER_DEVICE float sampling_score(float t, uint32_t word) {
  return __fsub_rn(t, plog(exponential_of(word)));
}

}  // namespace temper::cuda::canonical
