// Backward of the gated delta rule in chunks of 64 rows (formulas: src/ops/hybrid/delta.h), bf16. Only the
// gradient of the state goes from chunk to chunk; everything else is done for all chunks at once:
//   pairs      per chunk and key head: P, A, inverses of the diagonal blocks of I + diag(beta) A, decays;
//   states     per sequence and value head, forward: the states between chunks, made again;
//   reverse    the same from the last chunk: dU, Y, dV, and dS between chunks;
//   gradients  per chunk and key head: dQ, dK, dbeta, dg from all of it.
// A column of dS depends on none of the others: a warp of the scans has 16 of them, transposed, in its
// registers, and waits for nobody but for the rows of the next chunk.

#include "kernels/cuda/hybrid/delta_backward.cuh"
#include "kernels/cuda/hybrid/delta_rule_backward.h"
#include "kernels/cuda/hybrid/hybrid.h"

namespace temper::cuda {
namespace delta_backward {
namespace {

/// A row of a tile of N columns.
template <int N>
constexpr int kPitch = N + 8;
template <int N>
constexpr int kTileBytes = C* kPitch<N> * 2;

/// A warp's columns of a state.
template <int DK>
constexpr int kStateTile = 16 * kPitch<DK> * 2;

// ---- pairs of rows

constexpr int kPairsThreads = 128;
template <int DK>
constexpr int kKeyBytes = 2 * kTileBytes<DK> + kBlocks* kBlock*(kBlock + 1) * 4;
/// Keys, diagonal blocks, and G and beta of the rows by value head.
template <int DK>
int pairs_bytes(int heads) {
  return kKeyBytes<DK> + heads * 2 * C * 4;
}

/// Column `column` of the inverse of I + `block` (strictly lower), and what its rounding loses.
TEMPER_DEVICE void invert_block(bf* high, bf* low, int64_t pitch, int rows, const float* block, int column) {
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    float sum = i == column ? 1.f : 0.f;
#pragma unroll
    for (int j = 0; j < i; ++j) sum = __fmaf_rn(-block[i * (kBlock + 1) + j], x[j], sum);
    x[i] = sum;
    const bf rounded = cn::store<bf>(sum);
    if (i < rows) {
      high[i * pitch + column] = rounded;
      low[i * pitch + column] = cn::store<bf>(__fsub_rn(sum, cn::load(rounded)));
    }
  }
}

/// What one value head has of the products of its key head: a warp has 16 rows.
TEMPER_DEVICE void store_pairs(const Call<bf>& c, const Chunk& chunk, int head, const float (&kk)[C / 8][4],
                               const float (&qk)[C / 8][4], const float* g, const float* beta, float* block) {
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, group = lane >> 2, t = lane & 3;
  bf* const to = c.pairs + c.at(chunk.row, head) * kPairs;
  const int64_t pitch = int64_t{c.Hv} * kPairs;
#pragma unroll
  for (int n = 0; n < C / 8; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = 16 * warp + group + 8 * half, j = 8 * n + 2 * t;
      float p[2], a[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float d = j + e <= i && i < chunk.rows ? exponential(__fsub_rn(g[i], g[j + e])) : 0.f;
        p[e] = __fmul_rn(d, qk[n][2 * half + e]);
        a[e] = j + e < i ? __fmul_rn(d, kk[n][2 * half + e]) : 0.f;
        if (n >> 1 == warp) block[(i & 15) * (kBlock + 1) + (j & 15) + e] = __fmul_rn(beta[i], a[e]);
      }
      if (i < chunk.rows) {
        *reinterpret_cast<uint32_t*>(to + i * pitch + j) = cn::pack(p[0], p[1]);
        *reinterpret_cast<uint32_t*>(to + i * pitch + C + j) = cn::pack(a[0], a[1]);
      }
    }
  __syncwarp();
  bf* const inverse = to + 16 * warp * pitch + 2 * C;
  if (lane < kBlock) invert_block(inverse, inverse + kBlock, pitch, chunk.rows - 16 * warp, block, lane);
}

template <int DK>
__global__ void __launch_bounds__(kPairsThreads, 3) pairs_kernel(const Call<bf> c) {
  begin_kernel();
  const Chunk chunk = chunk_of(c.cu, c.S, blockIdx.x);
  if (chunk.rows == 0) return;
  extern __shared__ __align__(128) uint8_t smem[];
  constexpr int P = kPitch<DK>;
  const uint32_t q = smem_u32(smem), k = q + kTileBytes<DK>;
  const int key_head = blockIdx.y, first = key_head * c.per_key(), warp = threadIdx.x >> 5;
  float* const block = reinterpret_cast<float*>(smem + 2 * kTileBytes<DK>) + warp * kBlock * (kBlock + 1);
  auto* const gates = reinterpret_cast<float*>(smem + kKeyBytes<DK>);  // [value heads, 2, C]: G, beta
  const bf* const rows = c.qkv + chunk.row * c.width();
  load_tile<P, C, DK, kPairsThreads>(q, rows + c.q_column(key_head), c.width(), chunk.rows, c.dk, c.whole);
  load_tile<P, C, DK, kPairsThreads>(k, rows + c.k_column(key_head), c.width(), chunk.rows, c.dk, c.whole);
  copies_commit();
  const int i = threadIdx.x % C, which = threadIdx.x / C;
  for (int h = 0; h < c.per_key(); ++h)
    gates[(2 * h + which) * C + i] =
        i < chunk.rows ? (which ? c.beta : c.decays)[c.at(chunk.row + i, first + h)] : 0.f;
  copies_wait<0>();
  __syncthreads();
  float kk[C / 8][4] = {}, qk[C / 8][4] = {};
#pragma unroll 2
  for (int s = 0; s < DK; s += 16) {
    uint32_t from_k[4], from_q[4], b[4];
    load_a<P>(from_k, k, 16 * warp, s);
    load_a<P>(from_q, q, 16 * warp, s);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      if (n > warp) break;
      load_b<P>(b, k, s, 16 * n);
      multiply(kk[2 * n], kk[2 * n + 1], from_k, b);
      multiply(qk[2 * n], qk[2 * n + 1], from_q, b);
    }
  }
  for (int h = 0; h < c.per_key(); ++h) {
    const float *const g = gates + 2 * h * C, *const beta = g + C;
    if (which == 0 && i < chunk.rows)
      c.rates[c.at(chunk.row + i, first + h)] =
          make_float4(exponential(g[i]), exponential(__fsub_rn(g[chunk.rows - 1], g[i])), beta[i], g[i]);
    __syncwarp();
    store_pairs(c, chunk, first + h, kk, qk, g, beta, block);
  }
}

// ---- states between chunks

template <int DK, int W>
struct ForwardStage {
  static constexpr int kColumns = 16 * W;
  static constexpr int kK = 0, kU = kK + kTileBytes<DK>, kRates = kU + kTileBytes<kColumns>,
                       kBytes = kRates + C * 16;
};

/// A warp's 16 columns of a state, which are rows in memory, by way of a tile of its own.
template <int DK, class Round>
TEMPER_DEVICE void store_state(bf* state, const Call<bf>& c, int d, uint32_t tile,
                               const float (&s)[DK / 8][4], Round&& round) {
  constexpr int P = kPitch<DK>;
  const int lane = threadIdx.x & 31, dk = c.wide_dk();
  if (d >= c.wide_dv()) return;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < DK / 8; n += 2)
    stsm4(element<P>(tile, lane & 15, 8 * n + (lane >> 4) * 8), round(s[n][0], s[n][1]),
          round(s[n][2], s[n][3]), round(s[n + 1][0], s[n + 1][1]), round(s[n + 1][2], s[n + 1][3]));
  __syncwarp();
#pragma unroll
  for (int i = lane; i < 16 * DK / 8; i += 32) {
    const int row = i / (DK / 8), column = i % (DK / 8) * 8;
    if (column < dk)
      *reinterpret_cast<uint4*>(state + (d + row) * dk + column) =
          load_shared16(element<P>(tile, row, column));
  }
}

/// Block (part of dv, value head, sequence): the forward's scan, of the same bits.
template <int DK, int W>
__global__ void __launch_bounds__(32 * W) states_kernel(const Call<bf> c) {
  begin_kernel();
  using Stage = ForwardStage<DK, W>;
  constexpr int P = kPitch<DK>, PD = kPitch<Stage::kColumns>;
  extern __shared__ __align__(128) uint8_t smem[];
  const Sequence q = sequence(c.cu, blockIdx.z);
  const int head = blockIdx.y, k_column = c.k_column(head / c.per_key()), d0 = blockIdx.x * Stage::kColumns;
  const int warp = threadIdx.x >> 5, t = threadIdx.x & 3, steps = q.chunks() - 1;
  const auto load = [&](int i) {
    const uint32_t to = smem_u32(smem) + (i & 1) * Stage::kBytes;
    const int64_t row = q.row + i * C;
    load_tile<P, C, DK, 32 * W>(to + Stage::kK, c.qkv + row * c.width() + k_column, c.width(), C, c.dk,
                                c.whole);
    load_tile<PD, C, Stage::kColumns, 32 * W>(to + Stage::kU, c.u + c.at(row, head) * c.dv + d0,
                                              int64_t{c.Hv} * c.dv, C, c.dv - d0, c.whole);
    load_rates(to + Stage::kRates, c, row, C, head);
    copies_commit();
  };
  const uint32_t own = smem_u32(smem) + 2 * Stage::kBytes + warp * kStateTile<DK>;
  if (steps > 0) load(0);
  float state[DK / 8][4] = {};
  for (int i = 0; i < steps; ++i) {
    copies_wait<0>();
    __syncthreads();
    if (i + 1 < steps) load(i + 1);
    const uint32_t at = smem_u32(smem) + (i & 1) * Stage::kBytes;
    const auto* rates = reinterpret_cast<const float4*>(smem + (i & 1) * Stage::kBytes + Stage::kRates);
    const float decay = rates[C - 1].x;
#pragma unroll
    for (int n = 0; n < DK / 8; ++n) scale(state[n], decay, decay);
#pragma unroll
    for (int s = 0; s < C; s += 16) {
      uint32_t u[4], b[4];
      load_a_turned<PD>(u, at + Stage::kU, 16 * warp, s);
      const float x0 = rates[s + 2 * t].y, x1 = rates[s + 2 * t + 1].y, x2 = rates[s + 2 * t + 8].y,
                  x3 = rates[s + 2 * t + 9].y;
      u[0] = times(u[0], x0, x1), u[1] = times(u[1], x0, x1);
      u[2] = times(u[2], x2, x3), u[3] = times(u[3], x2, x3);
#pragma unroll
      for (int n = 0; n < DK / 16; ++n) {
        load_b_turned<P>(b, at + Stage::kK, s, 16 * n);
        multiply(state[2 * n], state[2 * n + 1], u, b);
      }
    }
    store_state<DK>(c.states + c.state_at(q.border + i, head), c, d0 + 16 * warp, own, state, upper);
  }
}

// ---- the gradient of the state, from the last chunk

template <int DK, int W>
struct ReverseStage {
  static constexpr int kColumns = 16 * W;
  static constexpr int kK = 0, kQ = kK + kTileBytes<DK>, kO = kQ + kTileBytes<DK>,
                       kP = kO + kTileBytes<kColumns>, kA = kP + kTileBytes<C>, kHigh = kA + kTileBytes<C>,
                       kLow = kHigh + kTileBytes<kBlock>, kRates = kLow + kTileBytes<kBlock>,
                       kBytes = kRates + C * 16;
};

template <int DK, int W>
TEMPER_DEVICE void load_reverse(uint32_t to, const Call<bf>& c, int row, int rows, int head, int d0) {
  using Stage = ReverseStage<DK, W>;
  const int key_head = head / c.per_key();
  const bf *const qkv = c.qkv + row * c.width(), *const pairs = c.pairs + c.at(row, head) * kPairs;
  const int64_t pitch = int64_t{c.Hv} * kPairs;
  constexpr int N = 32 * W;
  load_tile<kPitch<DK>, C, DK, N>(to + Stage::kK, qkv + c.k_column(key_head), c.width(), rows, c.dk, c.whole);
  load_tile<kPitch<DK>, C, DK, N>(to + Stage::kQ, qkv + c.q_column(key_head), c.width(), rows, c.dk, c.whole);
  load_tile<kPitch<16 * W>, C, 16 * W, N>(to + Stage::kO, c.d_o + c.at(row, head) * c.dv + d0,
                                          int64_t{c.Hv} * c.dv, rows, c.dv - d0, c.whole);
  load_tile<kPitch<C>, C, C, N>(to + Stage::kP, pairs, pitch, rows, C, true);
  load_tile<kPitch<C>, C, C, N>(to + Stage::kA, pairs + C, pitch, rows, C, true);
  load_tile<kPitch<kBlock>, C, kBlock, N>(to + Stage::kHigh, pairs + 2 * C, pitch, rows, kBlock, true);
  load_tile<kPitch<kBlock>, C, kBlock, N>(to + Stage::kLow, pairs + 2 * C + kBlock, pitch, rows, kBlock,
                                          true);
  load_rates(to + Stage::kRates, c, row, rows, head);
  copies_commit();
}

/// Y in the place of dU, both transposed: blocks of 16 rows from the last one.
TEMPER_DEVICE void solve(float (&y)[C / 8][4], uint32_t a, uint32_t high, uint32_t low, const float4* rates) {
  const int t = threadIdx.x & 3;
  uint32_t z[kBlocks][4];  // -Z
#pragma unroll
  for (int n = kBlocks - 1; n >= 0; --n) {
    float(&y0)[4] = y[2 * n], (&y1)[4] = y[2 * n + 1];
    uint32_t b[4], x[4], rest[4], inverse[4];
#pragma unroll
    for (int l = kBlocks - 1; l > n; --l) {
      load_b_turned<kPitch<C>>(b, a, 16 * l, 16 * n);
      multiply(y0, y1, z[l], b);
    }
    to_operand(x, y0, y1);
    const auto left = [](float v, float rounded) { return __fsub_rn(v, rounded); };
    rest[0] = cn::pack(left(y0[0], delta_backward::low(x[0])), left(y0[1], delta_backward::high(x[0])));
    rest[1] = cn::pack(left(y0[2], delta_backward::low(x[1])), left(y0[3], delta_backward::high(x[1])));
    rest[2] = cn::pack(left(y1[0], delta_backward::low(x[2])), left(y1[1], delta_backward::high(x[2])));
    rest[3] = cn::pack(left(y1[2], delta_backward::low(x[3])), left(y1[3], delta_backward::high(x[3])));
    load_b_turned<kPitch<kBlock>>(inverse, high, 16 * n, 0);
    load_b_turned<kPitch<kBlock>>(b, low, 16 * n, 0);
#pragma unroll
    for (int e = 0; e < 4; ++e) y0[e] = 0.f, y1[e] = 0.f;
    multiply(y0, y1, rest, inverse);
    multiply(y0, y1, x, b);
    multiply(y0, y1, x, inverse);
    const float* const r = &rates[16 * n + 2 * t].z;  // beta of rows 2 t, 2 t + 1, 2 t + 8, 2 t + 9
    const float b0 = -r[0], b1 = -r[4], b2 = -r[32], b3 = -r[36];
    z[n][0] = cn::pack(__fmul_rn(b0, y0[0]), __fmul_rn(b1, y0[1]));
    z[n][1] = cn::pack(__fmul_rn(b0, y0[2]), __fmul_rn(b1, y0[3]));
    z[n][2] = cn::pack(__fmul_rn(b2, y1[0]), __fmul_rn(b3, y1[1]));
    z[n][3] = cn::pack(__fmul_rn(b2, y1[2]), __fmul_rn(b3, y1[3]));
  }
}

/// A warp's 16 columns of all rows, transposed in registers, to memory by way of its own columns of a tile.
template <int P>
TEMPER_DEVICE void store_columns(bf* to, int64_t pitch, int rows, int columns, bool whole, uint32_t tile,
                                 const float (&y)[C / 8][4]) {
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < C / 8; n += 2) {
    uint32_t a[4];
    to_operand(a, y[n], y[n + 1]);
    store_matrices_turned(
        element<P>(tile, 8 * n + (lane >> 4) * 8 + (lane & 7), 16 * warp + (lane >> 3 & 1) * 8), a[0], a[1],
        a[2], a[3]);
  }
  __syncwarp();
  for (int i = lane; i < 2 * rows; i += 32) {
    const int row = i >> 1, column = 8 * (i & 1);
    union {
      uint4 all;
      RawGroup<bf> raw;
    } x;
    x.all = load_shared16(element<P>(tile, row, 16 * warp + column));
    if (column < columns) store_raw(to + row * pitch + column, x.raw, columns - column, whole);
  }
}

/// dS <- e^G_last dS + dO^T (e^G Q) - Z^T (e^G K), transposed, the factors on the other operand.
template <int DK>
TEMPER_DEVICE void pass_state(float (&ds)[DK / 8][4], const uint32_t (&d_o)[kBlocks][4],
                              const float (&y)[C / 8][4], uint32_t q, uint32_t k, const float4* rates,
                              float decay) {
  const int t = threadIdx.x & 3;
#pragma unroll
  for (int n = 0; n < DK / 8; ++n) scale(ds[n], decay, decay);
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
    const float4 r0 = rates[16 * n + 2 * t], r1 = rates[16 * n + 2 * t + 1], r2 = rates[16 * n + 2 * t + 8],
                 r3 = rates[16 * n + 2 * t + 9];
    const uint32_t o[4] = {times(d_o[n][0], r0.x, r1.x), times(d_o[n][1], r0.x, r1.x),
                           times(d_o[n][2], r2.x, r3.x), times(d_o[n][3], r2.x, r3.x)};
    const float b0 = -__fmul_rn(r0.x, r0.z), b1 = -__fmul_rn(r1.x, r1.z), b2 = -__fmul_rn(r2.x, r2.z),
                b3 = -__fmul_rn(r3.x, r3.z);
    const float(&y0)[4] = y[2 * n], (&y1)[4] = y[2 * n + 1];
    const uint32_t z[4] = {cn::pack(__fmul_rn(b0, y0[0]), __fmul_rn(b1, y0[1])),
                           cn::pack(__fmul_rn(b0, y0[2]), __fmul_rn(b1, y0[3])),
                           cn::pack(__fmul_rn(b2, y1[0]), __fmul_rn(b3, y1[1])),
                           cn::pack(__fmul_rn(b2, y1[2]), __fmul_rn(b3, y1[3]))};
#pragma unroll
    for (int a = 0; a < DK / 16; ++a) {
      uint32_t b[4];
      load_b_turned<kPitch<DK>>(b, q, 16 * n, 16 * a);
      multiply(ds[2 * a], ds[2 * a + 1], o, b);
    }
#pragma unroll
    for (int a = 0; a < DK / 16; ++a) {
      uint32_t b[4];
      load_b_turned<kPitch<DK>>(b, k, 16 * n, 16 * a);
      multiply(ds[2 * a], ds[2 * a + 1], z, b);
    }
  }
}

/// Block (part of dv, value head, sequence).
template <int DK, int W>
__global__ void __launch_bounds__(32 * W, 1) reverse_kernel(const Call<bf> c) {
  begin_kernel();
  using Stage = ReverseStage<DK, W>;
  constexpr int PD = kPitch<Stage::kColumns>;
  extern __shared__ __align__(128) uint8_t smem[];
  const Sequence q = sequence(c.cu, blockIdx.z);
  const int head = blockIdx.y, d0 = blockIdx.x * Stage::kColumns, warp = threadIdx.x >> 5,
            t = threadIdx.x & 3, d = d0 + 16 * warp;
  const auto load = [&](int i) {
    load_reverse<DK, W>(smem_u32(smem) + (i & 1) * Stage::kBytes, c, q.row + i * C, min(C, q.rows - i * C),
                        head, d0);
  };
  const uint32_t own = smem_u32(smem) + 2 * Stage::kBytes + warp * kStateTile<DK>;
  if (q.rows > 0) load(q.chunks() - 1);
  float ds[DK / 8][4] = {};
  for (int i = q.chunks() - 1; i >= 0; --i) {
    copies_wait<0>();
    __syncthreads();
    if (i > 0) load(i - 1);
    const uint32_t at = smem_u32(smem) + (i & 1) * Stage::kBytes;
    const auto* rates = reinterpret_cast<const float4*>(smem + (i & 1) * Stage::kBytes + Stage::kRates);
    const int row = q.row + i * C, rows = min(C, q.rows - i * C);
    float y[C / 8][4] = {};
    if (i + 1 < q.chunks()) {
      store_state<DK>(c.dstates + c.state_at(q.border + i, head), c, d, own, ds, cn::pack);
#pragma unroll
      for (int s = 0; s < DK / 16; ++s) {
        uint32_t a[4], b[4];
        to_operand(a, ds[2 * s], ds[2 * s + 1]);
#pragma unroll
        for (int n = 0; n < kBlocks; ++n) {
          load_b<kPitch<DK>>(b, at + Stage::kK, 16 * s, 16 * n);
          multiply(y[2 * n], y[2 * n + 1], a, b);
        }
      }
#pragma unroll
      for (int n = 0; n < C / 8; ++n) scale(y[n], rates[8 * n + 2 * t].y, rates[8 * n + 2 * t + 1].y);
    }
    uint32_t d_o[kBlocks][4];
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) {
      load_a_turned<PD>(d_o[s], at + Stage::kO, 16 * warp, 16 * s);
#pragma unroll
      for (int n = 0; n <= s; ++n) {
        uint32_t b[4];
        load_b_turned<kPitch<C>>(b, at + Stage::kP, 16 * s, 16 * n);
        multiply(y[2 * n], y[2 * n + 1], d_o[s], b);
      }
    }
    solve(y, at + Stage::kA, at + Stage::kHigh, at + Stage::kLow, rates);
    if (d < c.wide_dv())
      store_columns<PD>(c.y + c.at(row, head) * c.wide_dv() + d, int64_t{c.Hv} * c.wide_dv(), rows, 16, true,
                        at + Stage::kO, y);
    if (i > 0) pass_state<DK>(ds, d_o, y, at + Stage::kQ, at + Stage::kK, rates, rates[rows - 1].x);
#pragma unroll
    for (int n = 0; n < C / 8; ++n) scale(y[n], rates[8 * n + 2 * t].z, rates[8 * n + 2 * t + 1].z);
    if (d < c.dv)
      store_columns<PD>(c.dqkv + row * c.width() + c.v_column(head) + d, c.width(), rows, min(16, c.dv - d),
                        c.whole, at + Stage::kO, y);
  }
}

// ---- launch

template <int DK>
void launch_pairs(Ctx& ctx, const Call<bf>& c) {
  const int bytes = pairs_bytes<DK>(c.per_key());
  allow_shared_memory(pairs_kernel<DK>, bytes);
  launch(ctx.lane, pairs_kernel<DK>, dim3(chunk_numbers(c), c.Hk), kPairsThreads, bytes, c);
}

/// W warps a block.
template <int DK, int W>
void launch_scans(Ctx& ctx, const Call<bf>& c) {
  constexpr int kForward = 2 * ForwardStage<DK, W>::kBytes + W * kStateTile<DK>,
                kReverse = 2 * ReverseStage<DK, W>::kBytes + W * kStateTile<DK>;
  static_assert(kReverse <= 227 * 1024);
  const dim3 grid(blocks_for(c.wide_dv(), 16 * W), c.Hv, c.S);
  allow_shared_memory(states_kernel<DK, W>, kForward);
  launch(ctx.lane, states_kernel<DK, W>, grid, 32 * W, kForward, c);
  allow_shared_memory(reverse_kernel<DK, W>, kReverse);
  launch(ctx.lane, reverse_kernel<DK, W>, grid, 32 * W, kReverse, c);
}

/// Few long scans share the chip in narrow blocks, which no bit shows; so do keys that leave little room.
template <int DK>
void run(Ctx& ctx, const Call<bf>& c) {
  launch_pairs<DK>(ctx, c);
  if constexpr (DK < 256)
    if (int64_t{c.S} * c.Hv * blocks_for(c.wide_dv(), 128) >= 100 && c.dv > 32)
      return launch_scans<DK, 8>(ctx, c);
  launch_scans<DK, 2>(ctx, c);
}

template <class E>
Call<E> call_of(Ctx& ctx, const Tensor& dqkv, const Tensor& dbeta, const Tensor& dg, const CTensor& d_o,
                const CTensor& qkv, const CTensor& beta, const CTensor& u, const CTensor& decays,
                const CTensor& cu_seqlens, const DeltaShape& shape) {
  const DeltaBackwardScratch s = delta_rule_backward_scratch(ctx.scratch, qkv.dim(0), shape, qkv.dtype);
  const auto number = [](int64_t x) { return static_cast<int>(x); };
  bool whole = shape.key_dim % 8 == 0 && shape.value_dim % 8 == 0;
  for (const void* p : {dqkv.data, d_o.data, qkv.data, u.data})
    whole = whole && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  return {data_of<E>(dqkv),
          dbeta.as<float>(),
          dg.as<float>(),
          data_of<E>(d_o),
          data_of<E>(qkv),
          data_of<E>(u),
          beta.as<float>(),
          decays.as<float>(),
          cu_seqlens.as<int32_t>(),
          data_of<E>(s.states),
          data_of<E>(s.dstates),
          data_of<E>(s.pairs),
          static_cast<float4*>(s.rates.raw()),
          data_of<E>(s.y),
          number(qkv.dim(0)),
          number(cu_seqlens.dim(0) - 1),
          number(shape.key_heads),
          number(shape.value_heads),
          number(shape.key_dim),
          number(shape.value_dim),
          whole};
}

}  // namespace
}  // namespace delta_backward

void delta_rule_backward(Ctx& ctx, Tensor dqkv, Tensor dbeta, Tensor dg, CTensor d_o, CTensor qkv,
                         CTensor beta, CTensor u, CTensor decays, CTensor cu_seqlens, DeltaShape shape) {
  namespace db = delta_backward;
  CHECK(shape.key_dim <= 256 && shape.value_dim <= 256,
        "heads of {} and {} elements, at most 256 in the rule's backward", shape.key_dim, shape.value_dim);
  if (qkv.dim(0) == 0) return;
  ArenaScope scope(ctx.scratch);
  dispatch_gpu_storage(qkv.dtype, [&](auto e) {
    const auto call =
        db::call_of<decltype(e)>(ctx, dqkv, dbeta, dg, d_o, qkv, beta, u, decays, cu_seqlens, shape);
    if constexpr (std::is_same_v<decltype(e), float>) {
      db::plain_backward(ctx, call);
    } else {
      if (shape.key_dim <= 64)
        db::run<64>(ctx, call);
      else if (shape.key_dim <= 128)
        db::run<128>(ctx, call);
      else
        db::run<256>(ctx, call);
      db::row_gradients(ctx, call);
    }
  });
}

}  // namespace temper::cuda
