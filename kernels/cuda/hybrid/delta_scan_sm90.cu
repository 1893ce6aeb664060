// The gated delta rule of many rows, heads of 128: one block per sequence, value head and 32 N columns, chunk
// by chunk. Four warps load keys and queries and make the factors of the next chunk; each 32 columns have
// four warps of their own, which hold the state in registers, 32 rows of it each, and take turns at the
// blocks of 16 rows: x of a block comes from the state and from the writes of the blocks before, then each
// lane substitutes in one column. Outputs and the other rows' products fill the time of those who wait.

#include "kernels/cuda/device/delta.cuh"
#include "kernels/cuda/hybrid/delta_sequence.cuh"

namespace temper::cuda {
namespace {

namespace dr = delta;
namespace cn = canonical;
using bf = __nv_bfloat16;
using dr::kBlock;
using dr::kChunk;

constexpr int kDim = 128, kSteps = kDim / dr::kStep, kColumns = 32, kTiles = kColumns / 8;
constexpr int kStages = 2, kBlocks = kChunk / kBlock,
              kTeam = 128;        // threads of the producers, and of 32 columns
constexpr int kPitch = 40;        // elements from one row of 32 columns to the next: no bank conflicts
constexpr int kFactorPitch = 20;  // floats from one row of factors to the next
constexpr int kProducerBarrier = 1, kTeamBarrier = 2;

/// Rows of 128 elements, their 16-byte parts turned so that neighbouring rows do not meet in a bank.
TEMPER_DEVICE int turned(int row, int part) { return row * kDim + ((part ^ (row & 7)) << 3); }
/// Blocks of factors, those of the rows `block` with earlier ones, and with their own too.
TEMPER_DEVICE int before(int block, int other) { return block * (block - 1) / 2 + other; }
TEMPER_DEVICE int up_to(int block, int other) { return block * (block + 1) / 2 + other; }

/// What the producers give for a chunk.
struct Stage {
  bf keys[kChunk * kDim], queries[kChunk * kDim];
  uint4 minus_a[6][32], p[10][32];          // left operands, as the lanes of a warp hold them
  float a[kBlocks][kBlock * kFactorPitch];  // of rows with those of their own block, the earlier row first
  float decays[kChunk], gamma[kChunk], ends[kChunk], beta[kChunk];
};
/// What four warps share.
struct Team {
  bf read[kDim * kPitch];  // the high half of the state
  bf writes[2][kChunk * kPitch], remembered[kChunk * kPitch];
  float x[kBlock * kPitch];
};
template <int N>
struct Memory {
  Stage stages[kStages];
  Team teams[N];
  uint64_t full[kStages], empty[kStages], ready[N][kBlocks];
};

TEMPER_DEVICE void copy_async(bf* to, const bf* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_u32(to)), "l"(from) : "memory");
}
TEMPER_DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
TEMPER_DEVICE void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// ---- the producers

struct Producer {
  const DeltaHead<bf>& h;
  int thread, column0, columns;

  TEMPER_DEVICE void sync() const { bar_sync(kProducerBarrier, kTeam); }

  TEMPER_DEVICE void load_rows(Stage& s, const DeltaPiece& p) const {
    for (int at = thread; at < kChunk * (kDim / 8); at += kTeam) {
      const int t = at / (kDim / 8), part = at % (kDim / 8);
      bf *const key = s.keys + turned(t, part), *const query = s.queries + turned(t, part);
      if (p.is_new(t)) {
        copy_async(key, h.k(p.r + t) + part * 8);
        copy_async(query, h.q(p.r + t) + part * 8);
        continue;
      }
      if (t < p.begin)
        copy_async(key, h.tail_key(t) + part * 8);
      else
        *reinterpret_cast<uint4*>(key) = uint4{};
      *reinterpret_cast<uint4*>(query) = uint4{};
    }
  }
  /// The rows after the next ones are on their way.
  TEMPER_DEVICE void prefetch_rows(int row) const {
    const int r = row + thread / 2, half = thread % 2 * (kDim / 2);
    if (r >= h.rows) return;
    prefetch(h.k(r) + half), prefetch(h.q(r) + half);
    prefetch((half == 0 ? h.c.g : h.c.beta) + h.gate(r));
    if (half < columns) prefetch(h.v(r) + column0 + half);
  }

  TEMPER_DEVICE void load_gates(Stage& s, const DeltaPiece& p) const {
    if (thread < kChunk) {
      const bool is_new = p.is_new(thread);
      s.decays[thread] = is_new ? h.c.g[h.gate(p.r + thread)] : thread < p.begin ? h.tail_decay(thread) : 0.f;
      s.beta[thread] = is_new ? h.c.beta[h.gate(p.r + thread)] : 0.f;
    }
    sync();
    if (thread == 0) sum_decays(s.decays, p);
    sync();
    if (thread >= kChunk) return;
    const bool is_new = p.is_new(thread);
    const float decay = s.decays[thread];
    s.gamma[thread] = is_new ? dr::exponential(decay) : 0.f;
    s.ends[thread] = p.end == kChunk ? dr::since(s.decays[kChunk - 1], decay) : 0.f;
    if (is_new && !h.c.paged && column0 == 0) h.c.decays[h.gate(p.r + thread)] = decay;
  }
  TEMPER_DEVICE static void sum_decays(float* decays, const DeltaPiece& p) {
    if (p.begin == 0 && p.end == kChunk) {
      float sum = 0.f;
#pragma unroll
      for (int t0 = 0; t0 < kChunk; t0 += kBlock) {
        float x[kBlock];
#pragma unroll
        for (int i = 0; i < kBlock; ++i) x[i] = decays[t0 + i];
#pragma unroll
        for (int i = 0; i < kBlock; ++i) x[i] = sum = t0 + i == 0 ? x[i] : dr::next_decay(sum, x[i]);
#pragma unroll
        for (int i = 0; i < kBlock; ++i) decays[t0 + i] = x[i];
      }
      return;
    }
    float sum = p.begin > 0 ? decays[p.begin - 1] : 0.f;
#pragma unroll 1
    for (int t = p.begin; t < p.end; ++t)
      decays[t] = sum = t == 0 ? decays[t] : dr::next_decay(sum, decays[t]);
  }

  /// Factors of the rows `block` with the rows `other`.
  TEMPER_DEVICE void factors(Stage& s, const DeltaPiece& p, int block, int other) const {
    const int lane = thread & 31, g = lane >> 2, q = lane & 3;
    float kk[2][4] = {}, qk[2][4] = {}, later[2], earlier[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      later[i] = s.decays[block * kBlock + g + 8 * i];
#pragma unroll
      for (int j = 0; j < 2; ++j) earlier[i][j] = s.decays[other * kBlock + i * 8 + 2 * q + j];
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t rows[4], queries[4], keys[4];
      const int at = turned(block * kBlock + (lane & 15), step * 2 + (lane >> 4));
      ldsm4(rows, smem_u32(s.keys + at));
      ldsm4(queries, smem_u32(s.queries + at));
      ldsm4(keys, smem_u32(s.keys + turned(other * kBlock + (lane >> 4) * 8 + (lane & 7),
                                           step * 2 + (lane >> 3 & 1))));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        mma16816(kk[half], rows, keys[2 * half], keys[2 * half + 1]);
        mma16816(qk[half], queries, keys[2 * half], keys[2 * half + 1]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = g + 8 * (e >> 1), column = half * 8 + 2 * q + (e & 1);
        const int t = block * kBlock + row, j = other * kBlock + column;
        const bool is_new = p.is_new(t);
        const float since = dr::since(later[e >> 1], earlier[half][e & 1]);
        kk[half][e] = is_new && j < t ? dr::factor(since, kk[half][e]) : 0.f;
        qk[half][e] = is_new && j <= t ? dr::factor(since, qk[half][e]) : 0.f;
      }
    s.p[up_to(block, other)][lane] = {cn::pack(qk[0][0], qk[0][1]), cn::pack(qk[0][2], qk[0][3]),
                                      cn::pack(qk[1][0], qk[1][1]), cn::pack(qk[1][2], qk[1][3])};
    if (other < block) {
      s.minus_a[before(block, other)][lane] = {cn::pack(-kk[0][0], -kk[0][1]), cn::pack(-kk[0][2], -kk[0][3]),
                                               cn::pack(-kk[1][0], -kk[1][1]),
                                               cn::pack(-kk[1][2], -kk[1][3])};
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s.a[block][(half * 8 + 2 * q + (e & 1)) * kFactorPitch + g + 8 * (e >> 1)] = kk[half][e];
  }

  template <int N>
  TEMPER_DEVICE void run(Memory<N>& m) const {
    int number = 0;
    for (int done = 0; done < h.rows; ++number) {
      const DeltaPiece p = next_piece(h.first, h.rows, done);
      const int at = number % kStages;
      Stage& s = m.stages[at];
      if (number >= kStages) mbar_wait(smem_u32(&m.empty[at]), (number / kStages - 1) & 1);
      load_rows(s, p);
      done += p.end - p.begin;
      prefetch_rows(done);
      load_gates(s, p);
      wait_for_copies();
      sync();
#pragma unroll 1
      for (int pair = thread / 32; pair < up_to(kBlocks, 0); pair += kTeam / 32) {
        const int block = pair >= 6 ? 3 : pair >= 3 ? 2 : pair >= 1 ? 1 : 0;
        if (block * kBlock < p.end && (block + 1) * kBlock > p.begin)
          factors(s, p, block, pair - up_to(block, 0));
      }
      mbar_arrive(smem_u32(&m.full[at]));
    }
  }
};

// ---- four warps with 32 columns

/// Right operand of 16 rows of 32 columns.
TEMPER_DEVICE void load_right(uint32_t (&b)[kTiles][2], const bf* rows) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int pair = 0; pair < kTiles / 2; ++pair) {
    uint32_t r[4];
    ldsm4_transposed(r, smem_u32(rows + (lane & 15) * kPitch + pair * 16 + (lane >> 4) * 8));
    b[2 * pair][0] = r[0], b[2 * pair][1] = r[1], b[2 * pair + 1][0] = r[2], b[2 * pair + 1][1] = r[3];
  }
}
TEMPER_DEVICE void multiply(float (&c)[kTiles][4], const uint32_t (&a)[4], const uint32_t (&b)[kTiles][2]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) mma16816(c[n], a, b[n][0], b[n][1]);
}

template <int N>
struct Columns {
  using Rows = float[kTiles][4];  // 16 rows, as a product has them
  static constexpr bool kTogether = N == 4;

  const DeltaHead<bf>& h;
  Memory<N>& m;
  int team, warp, lane, column0;  // warp: the block of rows that it takes

  TEMPER_DEVICE Team& mine() const { return m.teams[team]; }
  TEMPER_DEVICE void sync() const { bar_sync(kTeamBarrier + team, kTeam); }
  TEMPER_DEVICE uint32_t ready(int block) const { return smem_u32(&m.ready[team][block]); }
  /// Row and column of an element of Rows.
  TEMPER_DEVICE int row_of(int e) const { return (lane >> 2) + 8 * (e >> 1); }
  TEMPER_DEVICE int column_of(int n) const { return n * 8 + (lane & 3) * 2; }

  /// What the state holds of 16 rows.
  TEMPER_DEVICE void product(Rows& c, const bf* rows) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t a[4], b[kTiles][2];
      ldsm4(a, smem_u32(rows + turned(warp * kBlock + (lane & 15), step * 2 + (lane >> 4))));
      load_right(b, mine().read + step * dr::kStep * kPitch);
      multiply(c, a, b);
    }
  }
  /// The same of both at once, where shared memory is what they wait for.
  TEMPER_DEVICE void products(Rows& x, Rows& y, const Stage& s) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t k[4], q[4], b[kTiles][2];
      const int at = turned(warp * kBlock + (lane & 15), step * 2 + (lane >> 4));
      load_right(b, mine().read + step * dr::kStep * kPitch);
      ldsm4(k, smem_u32(s.keys + at));
      multiply(x, k, b);
      ldsm4(q, smem_u32(s.queries + at));
      multiply(y, q, b);
    }
  }
  TEMPER_DEVICE void add_rows(Rows& c, const uint4& factors, const bf* writes, int block) const {
    uint32_t b[kTiles][2];
    load_right(b, writes + block * kBlock * kPitch);
    multiply(c, {factors.x, factors.y, factors.z, factors.w}, b);
  }

  TEMPER_DEVICE void load_values(uint32_t (&v)[kTiles][2], const DeltaPiece& p) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = warp * kBlock + row_of(2 * half);
      const bool is_new = p.is_new(t);
      const bf* const from = h.v(is_new ? p.r + t : 0) + column0;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) v[n][half] = is_new ? dr::pair_at(from + column_of(n)) : 0u;
    }
  }

  /// x of this warp's block, and from it the writes, which go where `writes` and the tail or u are.
  TEMPER_DEVICE void write_rows(const Stage& s, const DeltaPiece& p, Rows& x, const uint32_t (&v)[kTiles][2],
                                bool has_state, bf* writes, int parity) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const uint32_t pair = v[n][e >> 1];
        const float value = __uint_as_float((e & 1) ? pair & 0xffff0000u : pair << 16);
        x[n][e] = has_state ? dr::begin_write(s.gamma[warp * kBlock + row_of(e)], x[n][e], value) : value;
      }
    for (int block = 0; block < warp; ++block) {
      mbar_wait(ready(block), parity);
      add_rows(x, s.minus_a[before(warp, block)][lane], writes, block);
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(mine().x + row_of(2 * half) * kPitch + column_of(n)) = {
            dr::without_sign_of_zero(x[n][2 * half]), dr::without_sign_of_zero(x[n][2 * half + 1])};
    __syncwarp();
    bf* const column = writes + warp * kBlock * kPitch + lane;
    if (p.begin > warp * kBlock)
      substitute<true>(s, column, p.begin - warp * kBlock);
    else
      substitute<false>(s, column, 0);
  }

  /// A column, row after row; the rows before `old` are written already. Nothing is stored before the end,
  /// so that loads need not wait for it.
  template <bool kHasOld>
  TEMPER_DEVICE void substitute(const Stage& s, bf* writes, int old) const {
    float x[kBlock], u[kBlock];
#pragma unroll
    for (int i = 0; i < kBlock; ++i) x[i] = mine().x[i * kPitch + lane];
#pragma unroll
    for (int j = 0; j < kBlock; ++j) {
      u[j] = dr::rounded_write(s.beta[warp * kBlock + j], x[j]);
      if (kHasOld && j < old) u[j] = cn::load(writes[j * kPitch]);
      const float* const a = s.a[warp] + j * kFactorPitch;
#pragma unroll
      for (int t0 = (j + 1) / 4 * 4; t0 < kBlock; t0 += 4) {
        const float4 f = *reinterpret_cast<const float4*>(a + t0);
        if (t0 > j) x[t0] = dr::take_off(f.x, u[j], x[t0]);
        if (t0 + 1 > j) x[t0 + 1] = dr::take_off(f.y, u[j], x[t0 + 1]);
        if (t0 + 2 > j) x[t0 + 2] = dr::take_off(f.z, u[j], x[t0 + 2]);
        x[t0 + 3] = dr::take_off(f.w, u[j], x[t0 + 3]);
      }
    }
#pragma unroll
    for (int j = 0; j < kBlock; ++j) writes[j * kPitch] = dr::upper_half(__float_as_uint(u[j]));
  }
  TEMPER_DEVICE void remember_rows(const Stage& s, const bf* writes) const {
    uint32_t w[kBlock / 2];
#pragma unroll
    for (int j = 0; j < kBlock; j += 2) {
      const int row = warp * kBlock + j;
      const bf* const u = writes + row * kPitch + lane;
      w[j / 2] =
          cn::pack(__fmul_rn(s.ends[row], cn::load(u[0])), __fmul_rn(s.ends[row + 1], cn::load(u[kPitch])));
    }
#pragma unroll
    for (int j = 0; j < kBlock; j += 2) {
      bf* const to = mine().remembered + (warp * kBlock + j) * kPitch + lane;
      to[0] = dr::lower_half(w[j / 2]), to[kPitch] = dr::upper_half(w[j / 2]);
    }
  }
  TEMPER_DEVICE void keep_rows(const DeltaPiece& p, const bf* writes) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = warp * kBlock + 8 * i + lane / 4, part = lane % 4 * 8;
      if (p.is_new(t))
        *reinterpret_cast<uint4*>(h.kept_write(p.r + t, t) + column0 + part) =
            *reinterpret_cast<const uint4*>(writes + t * kPitch + part);
    }
  }

  TEMPER_DEVICE void begin_outputs(const Stage& s, Rows& y) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) y[n][e] = dr::begin_output(s.gamma[warp * kBlock + row_of(e)], y[n][e]);
  }
  TEMPER_DEVICE void outputs(const Stage& s, const DeltaPiece& p, Rows& y, const bf* writes) const {
    for (int block = 0; block <= warp; ++block) add_rows(y, s.p[up_to(warp, block)][lane], writes, block);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = warp * kBlock + row_of(2 * half);
      if (!p.is_new(t)) continue;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        *reinterpret_cast<uint32_t*>(h.o(p.r + t) + column0 + column_of(n)) =
            cn::pack(dr::without_sign_of_zero(y[n][2 * half]), dr::without_sign_of_zero(y[n][2 * half + 1]));
    }
  }

  // ---- the state: rows 32 warp .. + 31, in two parts of 16

  TEMPER_DEVICE void next_state(float (&state)[2][kTiles][4], const Stage& s) const {
    const float gamma = s.gamma[kChunk - 1];
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) state[part][n][e] = __fmul_rn(gamma, state[part][n][e]);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      uint32_t b[kTiles][2];
      load_right(b, mine().remembered + block * kBlock * kPitch);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        uint32_t a[4];
        ldsm4_transposed(a, smem_u32(s.keys + turned(block * kBlock + (lane >> 4) * 8 + (lane & 7),
                                                     warp * 4 + part * 2 + (lane >> 3 & 1))));
        multiply(state[part], a, b);
      }
    }
  }
  /// f(element, i, d of the head) for all elements of this lane.
  template <class F>
  TEMPER_DEVICE void each_element(float (&state)[2][kTiles][4], const F& f) const {
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          f(state[part][n][e], warp * 32 + part * 16 + row_of(e), column0 + column_of(n) + (e & 1));
  }
  TEMPER_DEVICE void show_state(const float (&state)[2][kTiles][4]) const {
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float* const x = state[part][n] + 2 * half;
          *reinterpret_cast<uint32_t*>(mine().read + (warp * 32 + part * 16 + row_of(2 * half)) * kPitch +
                                       column_of(n)) =
              dr::high_half(x[0]) | static_cast<uint32_t>(dr::high_half(x[1])) << 16;
        }
  }
  TEMPER_DEVICE void load_state(float (&state)[2][kTiles][4], float* slot) const {
    const uint16_t *const high = h.high_plane(slot), *const low = h.low_plane(slot);
    each_element(state, [&](float& x, int i, int d) {
      const int place = dr::state_place(i, d, kDim, kDim);
      x = dr::joined(high[place], low[place]);
    });
  }
  TEMPER_DEVICE void store_state(float (&state)[2][kTiles][4], float* slot) const {
    uint16_t *const high = h.high_plane(slot), *const low = h.low_plane(slot);
    each_element(state, [&](float& x, int i, int d) {
      const int place = dr::state_place(i, d, kDim, kDim);
      high[place] = dr::high_half(x), low[place] = dr::low_half(x);
    });
  }

  /// Writes that the tail has of the first chunk.
  TEMPER_DEVICE void load_old_writes(const DeltaPiece& p, bf* writes) const {
    for (int at = threadIdx.x % kTeam; at < p.begin * (kColumns / 8); at += kTeam) {
      const int t = at / (kColumns / 8), part = at % (kColumns / 8) * 8;
      *reinterpret_cast<uint4*>(writes + t * kPitch + part) =
          *reinterpret_cast<const uint4*>(h.tail_write(t) + column0 + part);
    }
  }

  TEMPER_DEVICE void run(int sequence) const {
    float state[2][kTiles][4] = {};
    bool has_state = h.has_state(), moved = false;
    if (has_state) {
      load_state(state, h.slot(h.c.pages.from, sequence));
      show_state(state);
    }
    int number = 0;
    for (int done = 0; done < h.rows; ++number) {
      const DeltaPiece p = next_piece(h.first, h.rows, done);
      const int at = number % kStages;
      const Stage& s = m.stages[at];
      bf* const writes = mine().writes[number & 1];
      const bool is_active = warp * kBlock < p.end && (warp + 1) * kBlock > p.begin,
                 is_last = warp == kBlocks - 1;  // nobody waits for its outputs
      uint32_t v[kTiles][2];
      load_values(v, p);
      if (number == 0) {
        load_old_writes(p, writes);
        sync();
      }
      mbar_wait(smem_u32(&m.full[at]), number / kStages & 1);
      Rows x = {}, y = {};
      if (is_active) {
        if (has_state && kTogether) {
          products(x, y, s);
          begin_outputs(s, y);
        } else if (has_state) {
          product(x, s.keys);
          if (warp > 0) product(y, s.queries), begin_outputs(s, y);
        }
        write_rows(s, p, x, v, has_state, writes, number & 1);
      }
      mbar_arrive_warp(ready(warp));
      if (p.end == kChunk) remember_rows(s, writes);
      if (is_active) keep_rows(p, writes);
      if (is_active && has_state && !kTogether && warp == 0) product(y, s.queries), begin_outputs(s, y);
      if (is_active && !is_last) outputs(s, p, y, writes);
      if (p.end == kChunk) {
        sync();
        next_state(state, s);
        show_state(state);
        has_state = moved = true;
        sync();
      }
      if (is_active && is_last) outputs(s, p, y, writes);
      mbar_arrive_warp(smem_u32(&m.empty[at]));
      done += p.end - p.begin;
    }
    if (moved && h.c.paged) store_state(state, h.slot(h.c.pages.to, sequence));
  }
};

template <int N>
__global__ void __launch_bounds__((N + 1) * kTeam, 1)
    scan_kernel(const __grid_constant__ DeltaCall c, bool skip_single_rows) {
  begin_kernel();
  extern __shared__ __align__(128) uint8_t bytes[];
  auto& m = *reinterpret_cast<Memory<N>*>(bytes);
  const int sequence = static_cast<int>(blockIdx.x), column0 = static_cast<int>(blockIdx.z) * N * kColumns;
  const DeltaHead<bf> h(c, sequence, static_cast<int>(blockIdx.y));
  if (h.rows == 0 || (skip_single_rows && h.rows == 1)) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbar_init(smem_u32(&m.full[i]), kTeam);
      mbar_init(smem_u32(&m.empty[i]), N * kBlocks * kWarpArrivals);
    }
    for (int team = 0; team < N; ++team)
      for (int i = 0; i < kBlocks; ++i) mbar_init(smem_u32(&m.ready[team][i]), kWarpArrivals);
    fence_barrier_init();
  }
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x), team = thread / kTeam, warp = thread % kTeam / 32;
  if (team == N) {
    if constexpr (N == 4) reg_dec<64>();
    Producer{h, thread % kTeam, column0, N * kColumns}.run(m);
  } else {
    if constexpr (N == 4) reg_inc<104>();
    // teams begin at different warps: those of a block of rows are on different schedulers
    Columns<N>{h, m, team, (warp + team) % kBlocks, thread % 32, column0 + team * kColumns}.run(sequence);
  }
}

template <int N>
void scan(Ctx& ctx, const DeltaCall& c, bool skip_single_rows) {
  static_assert(sizeof(Memory<N>) <= 227 * 1024);
  allow_shared_memory(scan_kernel<N>, sizeof(Memory<N>));
  launch(ctx.lane, scan_kernel<N>,
         dim3(c.T > 0 ? c.S : 0, static_cast<unsigned>(c.heads.value_heads), kDim / kColumns / N),
         dim3((N + 1) * kTeam), sizeof(Memory<N>), c, skip_single_rows);
}

}  // namespace

void delta_rule_scan(Ctx& ctx, const DeltaCall& c, bool skip_single_rows) {
  const int64_t heads = int64_t{c.S} * c.heads.value_heads;
  if (heads >= kEnoughScans)
    scan<4>(ctx, c, skip_single_rows);
  else if (2 * heads >= kEnoughScans)
    scan<2>(ctx, c, skip_single_rows);
  else
    scan<1>(ctx, c, skip_single_rows);
  if (c.paged) append_to_tails(ctx, DType::bf16, c, skip_single_rows);
}

}  // namespace temper::cuda
