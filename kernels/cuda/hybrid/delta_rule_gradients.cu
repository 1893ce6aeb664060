// The last step of the gated delta rule's backward (delta_rule_backward.cu): a block of threads takes a chunk
// of one key head and adds over its value heads. Four warps by rows times two by columns; columns of dq and
// dk go in parts of DK.

#include "kernels/cuda/hybrid/delta_rule_backward.h"

namespace temper::cuda::delta_backward {
namespace {

constexpr int kThreads = 256, kSlice = 64, kMostHeads = 16;
constexpr int kP = kSlice + 8;  // pitch of tiles of 64 columns

/// Sums over rows or columns that several warps have parts of.
enum Sum { kBeta, kDecay, kEnd, kSums };
struct Shared {
  float parts[kSums][2][C];     // by half of the columns
  float columns[kBlocks][C];    // of E, by block of rows
  float beta_of_v[C];           // <Y_i, v_i>
  float states[kThreads / 32];  // <S, dS>
  float dbeta[kMostHeads][C], decay[kMostHeads][C], end[kMostHeads][C], of_states[kMostHeads];
};

template <int DK>
struct Tiles {
  static constexpr int P = DK + 8, kWide = C * P * 2, kNarrow = C * kP * 2;
  // of a slice
  static constexpr int kU = 0, kO = kU + kNarrow, kY = kO + kNarrow, kState = kY + kNarrow,
                       kGradient = kState + kWide, kRates = kGradient + kWide, kStage = kRates + C * 16;
  // of a key head, and of a value head
  static constexpr int kQ = 2 * kStage, kK = kQ + kWide, kF = kK + kWide, kH = kF + kNarrow,
                       kShared = kH + kNarrow, kBytes = kShared + static_cast<int>(sizeof(Shared));
};

/// A warp's sums over the slices: 16 rows, half of DK or of the 64 rows.
template <int DK>
struct Products {
  static constexpr int N = DK / 16;   // tiles of 8 columns
  float os[N][4], ys[N][4], x[N][4];  // dO S^T, Y S^T, U dS^T
  float ou[4][4], yu[4][4];           // dO U^T, Y U^T
};

TEMPER_DEVICE float quad_add(float x) {
  x = __fadd_rn(x, __shfl_xor_sync(~0u, x, 1));
  return __fadd_rn(x, __shfl_xor_sync(~0u, x, 2));
}

template <int DK>
class Gradients {
  using T = Tiles<DK>;
  static constexpr int N = Products<DK>::N, P = T::P;

 public:
  TEMPER_DEVICE Gradients(const Call<bf>& c, const Chunk& chunk, int key_head, uint8_t* smem)
      : c_(c),
        chunk_(chunk),
        key_head_(key_head),
        at_(smem_u32(smem)),
        shared_(*reinterpret_cast<Shared*>(smem + T::kShared)),
        block_(threadIdx.x >> 5 & 3),
        half_(threadIdx.x >> 7),
        group_(threadIdx.x >> 2 & 7),
        t_(threadIdx.x & 3) {}

  TEMPER_DEVICE void run() {
    for (int part = 0; part * DK < c_.dk; ++part) {
      load_keys(part);
      load_slice(part, 0);
      float dq[N][4] = {}, dk[N][4] = {};
      for (int h = 0; h < c_.per_key(); ++h) add_head(part, h, dq, dk);
      __syncthreads();
      store_keys(part, dq, dk);
    }
    for (int h = threadIdx.x >> 5; h < c_.per_key(); h += kThreads / 32) store_gates(h);
  }

 private:
  TEMPER_DEVICE int row_of(int e) const { return 16 * block_ + group_ + 8 * (e >> 1); }
  TEMPER_DEVICE int part_column(int n, int e) const { return half_ * (DK / 2) + 8 * n + 2 * t_ + (e & 1); }
  TEMPER_DEVICE int pair_column(int n, int e) const { return half_ * 32 + 8 * n + 2 * t_ + (e & 1); }
  TEMPER_DEVICE int in_part(int part, int columns) const { return min(columns - part * DK, DK); }

  TEMPER_DEVICE void load_keys(int part) {
    const bf* const rows = c_.qkv + chunk_.row * c_.width() + part * DK;
    const int columns = in_part(part, c_.dk);
    load_tile<P, C, DK, kThreads>(at_ + T::kQ, rows + c_.q_column(key_head_), c_.width(), chunk_.rows,
                                  columns, c_.whole);
    load_tile<P, C, DK, kThreads>(at_ + T::kK, rows + c_.k_column(key_head_), c_.width(), chunk_.rows,
                                  columns, c_.whole);
  }

  TEMPER_DEVICE int head_of(int h) const { return key_head_ * c_.per_key() + h; }
  TEMPER_DEVICE int slices() const { return (c_.dv + kSlice - 1) / kSlice; }
  TEMPER_DEVICE uint32_t stage_of(int slice) const { return at_ + (slice & 1) * T::kStage; }

  /// Slice n of the value heads one after the other: 64 columns of U, dO, Y and as many of the states.
  TEMPER_DEVICE void load_slice(int part, int n) {
    const int head = head_of(n / slices()), d = n % slices() * kSlice;
    const uint32_t to = stage_of(n);
    const int64_t at = c_.at(chunk_.row, head);
    load_tile<kP, C, kSlice, kThreads>(to + T::kU, c_.u + at * c_.dv + d, int64_t{c_.Hv} * c_.dv, chunk_.rows,
                                       c_.dv - d, c_.whole);
    load_tile<kP, C, kSlice, kThreads>(to + T::kO, c_.d_o + at * c_.dv + d, int64_t{c_.Hv} * c_.dv,
                                       chunk_.rows, c_.dv - d, c_.whole);
    const int dv = c_.wide_dv(), dk = c_.wide_dk();
    load_tile<kP, C, kSlice, kThreads>(to + T::kY, c_.y + at * dv + d, int64_t{c_.Hv} * dv, chunk_.rows,
                                       dv - d, true);
    const auto state = [&](uint32_t tile, const bf* states, int border) {
      if (border >= 0)
        load_tile<P, kSlice, DK, kThreads>(tile, states + c_.state_at(border, head) + d * dk + part * DK, dk,
                                           dv - d, in_part(part, dk), true);
    };
    state(to + T::kState, c_.states, chunk_.before);
    state(to + T::kGradient, c_.dstates, chunk_.after);
    load_rates(to + T::kRates, c_, chunk_.row, chunk_.rows, head);
    copies_commit();
  }
  /// P and A where dP o D and dA o D will be.
  TEMPER_DEVICE void load_pairs(int head) {
    const bf* const pairs = c_.pairs + c_.at(chunk_.row, head) * kPairs;
    const int64_t pitch = int64_t{c_.Hv} * kPairs;
    load_tile<kP, C, C, kThreads>(at_ + T::kF, pairs, pitch, chunk_.rows, C, true);
    load_tile<kP, C, C, kThreads>(at_ + T::kH, pairs + C, pitch, chunk_.rows, C, true);
    copies_commit();
  }
  TEMPER_DEVICE float4 rates(int row) const {
    const uint4 r = load_shared16(stage_ + T::kRates + row * 16);
    return make_float4(__uint_as_float(r.x), __uint_as_float(r.y), __uint_as_float(r.z),
                       __uint_as_float(r.w));
  }

  TEMPER_DEVICE void multiply_slice(Products<DK>& p) const {
#pragma unroll
    for (int s = 0; s < kSlice; s += 16) {
      uint32_t u[4], o[4], y[4], b[4];
      load_a<kP>(u, stage_ + T::kU, 16 * block_, s);
      load_a<kP>(o, stage_ + T::kO, 16 * block_, s);
      load_a<kP>(y, stage_ + T::kY, 16 * block_, s);
      if (chunk_.before >= 0)
#pragma unroll
        for (int n = 0; n < N; n += 2) {
          load_b_turned<P>(b, stage_ + T::kState, s, half_ * (DK / 2) + 8 * n);
          multiply(p.os[n], p.os[n + 1], o, b);
          multiply(p.ys[n], p.ys[n + 1], y, b);
        }
      if (chunk_.after >= 0)
#pragma unroll
        for (int n = 0; n < N; n += 2) {
          load_b_turned<P>(b, stage_ + T::kGradient, s, half_ * (DK / 2) + 8 * n);
          multiply(p.x[n], p.x[n + 1], u, b);
        }
#pragma unroll
      for (int n = 0; n < 4; n += 2) {
        if (2 * half_ + n / 2 > block_) break;
        load_b<kP>(b, stage_ + T::kU, s, half_ * 32 + 8 * n);
        multiply(p.ou[n], p.ou[n + 1], o, b);
        multiply(p.yu[n], p.yu[n + 1], y, b);
      }
    }
  }

  /// Products of Y with v, and of the states.
  TEMPER_DEVICE void dots_of_slice(int d, float& of_v, float& of_states) const {
    const int row = threadIdx.x >> 2, quarter = 16 * t_;
    if (row < chunk_.rows) {
      const bf* const v = c_.qkv + (chunk_.row + row) * c_.width() + c_.v_column(head_) + d + quarter;
#pragma unroll
      for (int g = 0; g < 16; g += 8) {
        const int count = c_.dv - d - quarter - g;
        if (count <= 0) break;
        float x[8];
        load_group(x, v + g, count, c_.whole);
        const uint4 y = load_shared16(element<kP>(stage_ + T::kY, row, quarter + g));
        const uint32_t pairs[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          of_v = __fmaf_rn(low(pairs[e]), x[2 * e], of_v);
          of_v = __fmaf_rn(high(pairs[e]), x[2 * e + 1], of_v);
        }
      }
    }
    if (chunk_.before < 0 || chunk_.after < 0) return;
    for (int i = threadIdx.x; i < kSlice * DK / 8; i += kThreads) {
      const int r = i / (DK / 8), column = i % (DK / 8) * 8;
      const uint4 s = load_shared16(element<P>(stage_ + T::kState, r, column)),
                  g = load_shared16(element<P>(stage_ + T::kGradient, r, column));
      const uint32_t a[4] = {s.x, s.y, s.z, s.w}, b[4] = {g.x, g.y, g.z, g.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        of_states = __fmaf_rn(low(a[e]), low(b[e]), of_states);
        of_states = __fmaf_rn(high(a[e]), high(b[e]), of_states);
      }
    }
  }

  /// What the products with the states give to dq, dk and the gates.
  TEMPER_DEVICE void fold_states(const Products<DK>& p, float (&dq)[N][4], float (&dk)[N][4],
                                 float (&sums)[kSums][2]) const {
    const float4 r[2] = {rates(row_of(0)), rates(row_of(2))};
    float qs[2] = {}, ks[2] = {}, kx[2] = {};
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t q = load_shared4(element<P>(at_ + T::kQ, row_of(2 * i), part_column(n, 0)));
        const uint32_t k = load_shared4(element<P>(at_ + T::kK, row_of(2 * i), part_column(n, 0)));
        const float read = -__fmul_rn(r[i].x, r[i].z);
#pragma unroll
        for (int e = 2 * i; e < 2 * i + 2; ++e) {
          const float qe = e & 1 ? high(q) : low(q), ke = e & 1 ? high(k) : low(k);
          qs[i] = __fmaf_rn(qe, p.os[n][e], qs[i]);
          ks[i] = __fmaf_rn(ke, p.ys[n][e], ks[i]);
          kx[i] = __fmaf_rn(ke, p.x[n][e], kx[i]);
          dq[n][e] = __fmaf_rn(r[i].x, p.os[n][e], dq[n][e]);
          dk[n][e] = __fmaf_rn(read, p.ys[n][e], __fmaf_rn(r[i].y, p.x[n][e], dk[n][e]));
        }
      }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float end = __fmul_rn(r[i].y, kx[i]);
      sums[kBeta][i] = -__fmul_rn(r[i].x, ks[i]);
      sums[kDecay][i] = __fsub_rn(__fmul_rn(r[i].x, __fmaf_rn(-r[i].z, ks[i], qs[i])), end);
      sums[kEnd][i] = end;
    }
  }

  /// dP o D and dA o D as tiles, and what E and A give to the gates; `count` it once.
  TEMPER_DEVICE void fold_pairs(const Products<DK>& p, bool count, float (&sums)[kSums][2]) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float of_column[2] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = row_of(2 * i), column = pair_column(n, 0);
        float f[2] = {}, h[2] = {};
        if (row < chunk_.rows && column <= row) {
          const float4 r = rates(row);
          const uint32_t pp = load_shared4(element<kP>(at_ + T::kF, row, column)),
                         aa = load_shared4(element<kP>(at_ + T::kH, row, column));
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (column + e > row) break;
            const float d = exponential(__fsub_rn(r.w, rates(column + e).w));
            const float dp = p.ou[n][2 * i + e], yu = p.yu[n][2 * i + e];
            const float da = column + e < row ? -__fmul_rn(r.z, yu) : 0.f;
            const float pe = e ? high(pp) : low(pp), ae = e ? high(aa) : low(aa);
            f[e] = __fmul_rn(dp, d);
            h[e] = __fmul_rn(da, d);
            const float both = __fmaf_rn(dp, pe, __fmul_rn(da, ae));
            if (count) {
              sums[kBeta][i] = __fmaf_rn(-ae, yu, sums[kBeta][i]);
              sums[kDecay][i] = __fadd_rn(sums[kDecay][i], both);
              of_column[e] = __fadd_rn(of_column[e], both);
            }
          }
        }
        store_shared4(element<kP>(at_ + T::kF, row, column), cn::pack(f[0], f[1]));
        store_shared4(element<kP>(at_ + T::kH, row, column), cn::pack(h[0], h[1]));
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int w = 4; w < 32; w *= 2)
          of_column[e] = __fadd_rn(of_column[e], __shfl_xor_sync(~0u, of_column[e], w));
        if (group_ == 0) shared_.columns[block_][pair_column(n, e)] = of_column[e];
      }
    }
  }

  TEMPER_DEVICE void multiply_pairs(float (&dq)[N][4], float (&dk)[N][4]) const {
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) {
      uint32_t f[4], h[4], turned_f[4], turned_h[4], b[4];
      if (s <= block_) {
        load_a<kP>(f, at_ + T::kF, 16 * block_, 16 * s);
        load_a<kP>(h, at_ + T::kH, 16 * block_, 16 * s);
      }
      if (s >= block_) {
        load_a_turned<kP>(turned_f, at_ + T::kF, 16 * block_, 16 * s);
        load_a_turned<kP>(turned_h, at_ + T::kH, 16 * block_, 16 * s);
      }
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        const int column = half_ * (DK / 2) + 8 * n;
        load_b_turned<P>(b, at_ + T::kK, 16 * s, column);
        if (s <= block_) {
          multiply(dq[n], dq[n + 1], f, b);
          multiply(dk[n], dk[n + 1], h, b);
        }
        if (s >= block_) {
          multiply(dk[n], dk[n + 1], turned_h, b);
          load_b_turned<P>(b, at_ + T::kQ, 16 * s, column);
          multiply(dk[n], dk[n + 1], turned_f, b);
        }
      }
    }
  }

  TEMPER_DEVICE void add_head(int part, int h, float (&dq)[N][4], float (&dk)[N][4]) {
    float sums[kSums][2], of_v = 0.f, of_states = 0.f;
    head_ = head_of(h);
    {
      Products<DK> p = {};
      for (int i = 0; i < slices(); ++i) {
        const int n = h * slices() + i;
        copies_wait<0>();
        __syncthreads();
        if (i == 0) load_pairs(head_);
        if (n + 1 < c_.per_key() * slices()) load_slice(part, n + 1);
        stage_ = stage_of(n);
        dots_of_slice(i * kSlice, of_v, of_states);
        multiply_slice(p);
      }
      fold_states(p, dq, dk, sums);
      if (slices() == 1) {
        copies_wait<0>();
        __syncthreads();
      }
      fold_pairs(p, part == 0, sums);
    }
    gather(sums, of_v, of_states);
    __syncthreads();
    multiply_pairs(dq, dk);
    if (threadIdx.x < C) add_gates(part, h);
  }

  TEMPER_DEVICE void gather(const float (&sums)[kSums][2], float of_v, float of_states) {
#pragma unroll
    for (int q = 0; q < kSums; ++q)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float sum = quad_add(sums[q][i]);
        if (t_ == 0) shared_.parts[q][half_][row_of(2 * i)] = sum;
      }
    of_v = quad_add(of_v);
    if (t_ == 0) shared_.beta_of_v[threadIdx.x >> 2] = of_v;
    of_states = cn::warp_sum(of_states);
    if ((threadIdx.x & 31) == 0) shared_.states[threadIdx.x >> 5] = of_states;
  }

  /// A thread per row.
  TEMPER_DEVICE void add_gates(int part, int h) {
    const int i = threadIdx.x;
    const auto both = [&](Sum q) { return __fadd_rn(shared_.parts[q][0][i], shared_.parts[q][1][i]); };
    float beta = both(kBeta), decay = both(kDecay), end = both(kEnd);
    if (part == 0) {
      beta = __fadd_rn(shared_.beta_of_v[i], beta);
      float column = 0.f;
      for (int b = 0; b < kBlocks; ++b) column = __fadd_rn(column, shared_.columns[b][i]);
      decay = __fsub_rn(decay, column);
    } else {
      beta = __fadd_rn(shared_.dbeta[h][i], beta);
      decay = __fadd_rn(shared_.decay[h][i], decay);
      end = __fadd_rn(shared_.end[h][i], end);
    }
    shared_.dbeta[h][i] = beta, shared_.decay[h][i] = decay, shared_.end[h][i] = end;
    if (i > 0) return;
    const float states = part == 0 ? 0.f : shared_.of_states[h];
    float sum = 0.f;
    for (float x : shared_.states) sum = __fadd_rn(sum, x);
    shared_.of_states[h] = __fmaf_rn(rates(chunk_.rows - 1).x, sum, states);
  }

  /// dq and dk of a part, by way of the tiles of q and k.
  TEMPER_DEVICE void store_keys(int part, const float (&dq)[N][4], const float (&dk)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = row_of(2 * i), column = part_column(n, 0);
        store_shared4(element<P>(at_ + T::kQ, row, column), cn::pack(dq[n][2 * i], dq[n][2 * i + 1]));
        store_shared4(element<P>(at_ + T::kK, row, column), cn::pack(dk[n][2 * i], dk[n][2 * i + 1]));
      }
    __syncthreads();
    const int columns = in_part(part, c_.dk);
    for (int i = threadIdx.x; i < chunk_.rows * (DK / 8); i += kThreads) {
      const int row = i / (DK / 8), column = i % (DK / 8) * 8;
      if (column >= columns) continue;
      bf* const to = c_.dqkv + (chunk_.row + row) * c_.width() + part * DK + column;
      store_eight(to + c_.q_column(key_head_), at_ + T::kQ, row, column, columns);
      store_eight(to + c_.k_column(key_head_), at_ + T::kK, row, column, columns);
    }
    __syncthreads();
  }
  TEMPER_DEVICE void store_eight(bf* to, uint32_t tile, int row, int column, int columns) const {
    union {
      uint4 all;
      RawGroup<bf> raw;
    } x;
    x.all = load_shared16(element<P>(tile, row, column));
    store_raw(to, x.raw, columns - column, c_.whole);
  }

  /// dbeta and dg of one value head, by one warp: two rows a lane, dG added from the last row on.
  TEMPER_DEVICE void store_gates(int h) {
    const int head = head_of(h), lane = threadIdx.x & 31, row = 2 * lane, last = chunk_.rows - 1;
    const float end = cn::warp_sum(__fadd_rn(shared_.end[h][row], shared_.end[h][row + 1]));
    const auto decay = [&](int i) {
      const float x = shared_.decay[h][i];
      return i == last ? __fadd_rn(x, __fadd_rn(end, shared_.of_states[h])) : x;
    };
    const float second = decay(row + 1);
    float sum = __fadd_rn(decay(row), second);
#pragma unroll
    for (int w = 1; w < 32; w *= 2) {
      const float later = __shfl_down_sync(~0u, sum, w);
      if (lane + w < 32) sum = __fadd_rn(sum, later);
    }
    float later = __shfl_down_sync(~0u, sum, 1);
    if (lane == 31) later = 0.f;
    const float dg[2] = {sum, __fadd_rn(second, later)};
    for (int i = 0; i < 2; ++i) {
      if (row + i > last) break;
      c_.dbeta[c_.at(chunk_.row + row + i, head)] = shared_.dbeta[h][row + i];
      c_.dg[c_.at(chunk_.row + row + i, head)] = dg[i];
    }
  }

  const Call<bf>& c_;
  const Chunk chunk_;
  const int key_head_;
  const uint32_t at_;
  Shared& shared_;
  const int block_, half_, group_, t_;
  int head_ = 0;
  uint32_t stage_ = 0;
};

template <int DK>
__global__ void __launch_bounds__(kThreads, 1) gradients_kernel(const Call<bf> c) {
  begin_kernel();
  extern __shared__ __align__(128) uint8_t smem[];
  const Chunk chunk = chunk_of(c.cu, c.S, blockIdx.x);
  if (chunk.rows > 0) Gradients<DK>(c, chunk, blockIdx.y, smem).run();
}

template <int DK>
void run(Ctx& ctx, const Call<bf>& c) {
  allow_shared_memory(gradients_kernel<DK>, Tiles<DK>::kBytes);
  launch(ctx.lane, gradients_kernel<DK>, dim3(chunk_numbers(c), c.Hk), kThreads, Tiles<DK>::kBytes, c);
}

}  // namespace

void row_gradients(Ctx& ctx, const Call<bf>& c) {
  CHECK(c.per_key() <= kMostHeads, "{} value heads of a key head, at most {}", c.per_key(), kMostHeads);
  if (c.dk <= 64)
    run<64>(ctx, c);
  else
    run<128>(ctx, c);
}

}  // namespace temper::cuda::delta_backward
