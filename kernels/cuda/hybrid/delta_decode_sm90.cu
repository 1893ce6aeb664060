// The gated delta rule of one row per sequence, heads of 128: one block per sequence and value head. What the
// state holds of k and of q comes from one product, the transposed state by the two as columns; so do the
// sums over earlier rows, x in the first column and o in the second. A warp has 32 columns of the state, its
// fragments straight from memory (delta::state_place), and needs the others only for the factors of rows.
//
// The state and the tail are older than the step, but for the row itself: they are read before the previous
// kernel has finished.

#include "kernels/cuda/device/delta.cuh"
#include "kernels/cuda/hybrid/delta_sequence.cuh"

namespace temper::cuda {
namespace {

namespace dr = delta;
namespace cn = canonical;
using bf = __nv_bfloat16;
using dr::kBlock;
using dr::kChunk;

constexpr int kDim = 128, kThreads = 128, kSteps = kDim / dr::kStep,
              kTiles = 2;  // tiles of 16 columns a warp

/// Rows of 128 elements, their 16-byte parts turned so that neighbouring rows do not meet in a bank.
TEMPER_DEVICE int turned(int row, int part) { return row * kDim + ((part ^ (row & 7)) << 3); }
TEMPER_DEVICE int element(int row, int column) { return turned(row, column / 8) + column % 8; }

struct Memory {
  bf keys[kChunk * kDim], writes[kChunk * kDim];
  bf row[2][kDim];  // k and q
  bf minus_a[kChunk], p[kChunk];
  float a[kBlock];      // those of the row's own block
  float since[kChunk];  // e^(G - G_j)
  float decays[kChunk];
  float x[kThreads];
};

TEMPER_DEVICE void copy_async(bf* to, const bf* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem_u32(to)), "l"(from) : "memory");
}
TEMPER_DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

struct Decode {
  const DeltaHead<bf>& h;
  Memory& m;
  int place, block, warp, lane;
  bool has_state;

  TEMPER_DEVICE int group() const { return lane >> 2; }
  TEMPER_DEVICE bool holds_sums() const { return (lane & 3) == 0; }
  /// Column of the state in row 0 or 8 of a lane's part of a tile.
  TEMPER_DEVICE int column(int tile) const { return (warp * kTiles + tile) * dr::kStep + group(); }
  TEMPER_DEVICE int64_t fragment(int tile, int step) const {
    return ((warp * kTiles + tile) * kSteps + step) * 32 + lane;
  }

  TEMPER_DEVICE void load_tail() const {
    for (int at = threadIdx.x; at < (block + 1) * kBlock * (kDim / 8); at += kThreads) {
      const int row = at / (kDim / 8), part = at % (kDim / 8);
      bf *const key = m.keys + turned(row, part), *const write = m.writes + turned(row, part);
      if (row < place) {
        copy_async(key, h.tail_key(row) + part * 8);
        copy_async(write, h.tail_write(row) + part * 8);
      } else {
        if (row > place) *reinterpret_cast<uint4*>(key) = uint4{};
        *reinterpret_cast<uint4*>(write) = uint4{};
      }
    }
    if (static_cast<int>(threadIdx.x) < place) m.decays[threadIdx.x] = h.tail_decay(threadIdx.x);
  }
  /// k and q of the row, which one of the heads that share the key keeps; its decay.
  TEMPER_DEVICE void load_row(float decay) const {
    const int part = threadIdx.x % 16;
    if (threadIdx.x < 32) {
      const bool is_key = threadIdx.x < 16;
      const uint4 x = *reinterpret_cast<const uint4*>((is_key ? h.k(0) : h.q(0)) + part * 8);
      *reinterpret_cast<uint4*>(m.row[is_key ? 0 : 1] + part * 8) = x;
      if (is_key) *reinterpret_cast<uint4*>(m.keys + turned(place, part)) = x;
      if (is_key && h.head % h.c.heads.group == 0)
        *reinterpret_cast<uint4*>(h.tail_key(place) + part * 8) = x;
    }
    if (threadIdx.x == 0) h.tail_decay(place) = m.decays[place] = decay;
  }

  /// Columns 0 and 1 of a right operand, the others being zero.
  TEMPER_DEVICE uint32_t columns(const bf* first, const bf* second, int k) const {
    return group() == 0 ? dr::pair_at(first + k) : group() == 1 ? dr::pair_at(second + k) : 0u;
  }

  /// Factors of the 16 rows of this warp, one of those that there are.
  TEMPER_DEVICE void factors(float decay) const {
    if (warp > block) return;
    float c[4] = {};
    const int t = lane & 3;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint32_t keys[4];
      ldsm4(keys, smem_u32(m.keys + turned(warp * kBlock + (lane & 15), s * 2 + (lane >> 4))));
      const int k = s * dr::kStep + 2 * t;
      mma16816(c, keys, columns(m.row[0], m.row[1], k), columns(m.row[0], m.row[1], k + 8));
    }
    if (!holds_sums()) return;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int j = warp * kBlock + group() + 8 * e;
      const float since = j <= place ? dr::since(decay, m.decays[j]) : 0.f;
      const float a = j < place ? dr::factor(since, c[2 * e]) : 0.f;
      m.since[j] = since;
      m.minus_a[j] = cn::store<bf>(-a);
      m.p[j] = cn::store<bf>(j <= place ? dr::factor(since, c[2 * e + 1]) : 0.f);
      if (warp == block) m.a[j - block * kBlock] = a;
    }
  }

  /// Columns of 16 rows of writes as the left operand.
  TEMPER_DEVICE void load_writes(uint32_t (&u)[4], int rows, int tile) const {
    ldsm4_transposed(u, smem_u32(m.writes + turned(rows * kBlock + (lane >> 4) * 8 + (lane & 7),
                                                   (warp * kTiles + tile) * 2 + (lane >> 3 & 1))));
  }
  TEMPER_DEVICE void add_rows(float (&sums)[kTiles][4], int rows) const {
    const int k = rows * kBlock + 2 * (lane & 3);
    const uint32_t low = columns(m.minus_a, m.p, k), high = columns(m.minus_a, m.p, k + 8);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t u[4];
      load_writes(u, rows, tile);
      mma16816(sums[tile], u, low, high);
    }
  }
  /// One of the two sums of each column to the lane that has the column.
  TEMPER_DEVICE float of_my_column(const float (&sums)[kTiles][4], int which) const {
    __syncwarp();
    if (holds_sums())
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        m.x[column(tile)] = sums[tile][which];
        m.x[column(tile) + 8] = sums[tile][2 + which];
      }
    __syncwarp();
    return m.x[threadIdx.x];
  }

  TEMPER_DEVICE void write_row(float x, float beta) const {
    const int n = static_cast<int>(threadIdx.x);
    for (int j = block * kBlock; j < place; ++j)
      x = dr::take_off(m.a[j - block * kBlock], cn::load(m.writes[element(j, n)]), x);
    const bf u = dr::write<bf>(beta, x);
    m.writes[element(place, n)] = u;
    h.tail_write(place)[n] = u;
    __syncwarp();
  }

  /// The state after the chunk's last row.
  TEMPER_DEVICE void next_state(float gamma, float* from, float* to) const {
    __syncwarp();
    for (int j = 0; j < kChunk; ++j) {
      bf& u = m.writes[element(j, static_cast<int>(threadIdx.x))];
      u = dr::remembered(m.since[j], u);
    }
    __syncwarp();
    const auto* const high = reinterpret_cast<const uint4*>(h.high_plane(from));
    const auto* const low = reinterpret_cast<const uint4*>(h.low_plane(from));
    auto *const new_high = reinterpret_cast<uint4*>(h.high_plane(to)), *const new_low =
                                                                           reinterpret_cast<uint4*>(
                                                                               h.low_plane(to));
#pragma unroll 1
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int64_t at = fragment(tile, s);
        uint32_t hi[4] = {}, lo[4] = {};
        if (has_state) {
          *reinterpret_cast<uint4*>(hi) = high[at];
          *reinterpret_cast<uint4*>(lo) = low[at];
        }
        float c[2][4];  // by 8 elements of k; parts 2 n and 2 n + 1 of the fragment
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          float* const to_sum = c[part / 2] + part % 2 * 2;
          to_sum[0] = has_state ? __fmul_rn(gamma, dr::joined_low(hi[part], lo[part])) : 0.f;
          to_sum[1] = has_state ? __fmul_rn(gamma, dr::joined_high(hi[part], lo[part])) : 0.f;
        }
#pragma unroll
        for (int rows = 0; rows < kChunk / kBlock; ++rows) {
          uint32_t u[4], k[4];
          load_writes(u, rows, tile);
          ldsm4_transposed(k, smem_u32(m.keys + turned(rows * kBlock + (lane & 15), s * 2 + (lane >> 4))));
          mma16816(c[0], u, k[0], k[1]);
          mma16816(c[1], u, k[2], k[3]);
        }
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const float* const sum = c[part / 2] + part % 2 * 2;
          hi[part] = dr::high_half(sum[0]) | static_cast<uint32_t>(dr::high_half(sum[1])) << 16;
          lo[part] = dr::low_half(sum[0]) | static_cast<uint32_t>(dr::low_half(sum[1])) << 16;
        }
        new_high[at] = *reinterpret_cast<const uint4*>(hi);
        new_low[at] = *reinterpret_cast<const uint4*>(lo);
      }
  }
};

__global__ void __launch_bounds__(kThreads, 4) decode_kernel(const __grid_constant__ DeltaCall c) {
  launch_dependents();
  __shared__ __align__(16) Memory m;
  const int sequence = static_cast<int>(blockIdx.y);
  const DeltaHead<bf> h(c, sequence, static_cast<int>(blockIdx.x));
  if (h.rows != 1) return wait_for_previous_kernel();  // a grid may not end before the one that it depends on
  const int place = h.first % kChunk;
  const Decode d{h,
                 m,
                 place,
                 place / kBlock,
                 static_cast<int>(threadIdx.x >> 5),
                 static_cast<int>(threadIdx.x & 31),
                 h.has_state()};
  uint4 state[kTiles][kSteps];
  if (d.has_state) {
    const auto* const high = reinterpret_cast<const uint4*>(h.high_plane(h.slot(c.pages.from, sequence)));
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int s = 0; s < kSteps; ++s) state[tile][s] = __ldcs(high + d.fragment(tile, s));
  }
  d.load_tail();
  const float before = place > 0 ? h.tail_decay(place - 1) : 0.f;
  wait_for_previous_kernel();

  const float g = c.g[h.gate(0)], beta = c.beta[h.gate(0)];
  const float decay = place > 0 ? dr::next_decay(before, g) : g, gamma = dr::exponential(decay);
  d.load_row(decay);
  float sums[kTiles][4], v[kTiles][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int e = 0; e < 2; ++e) v[tile][e] = cn::load(h.v(0)[d.column(tile) + 8 * e]);
  wait_for_copies();
  __syncthreads();

  d.factors(decay);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int e = 0; e < 2; ++e) sums[tile][2 * e] = v[tile][e], sums[tile][2 * e + 1] = 0.f;
  if (d.has_state) {
    float held[kTiles][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int k = s * dr::kStep + 2 * (d.lane & 3);
      const uint32_t low = d.columns(m.row[0], m.row[1], k), high = d.columns(m.row[0], m.row[1], k + 8);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4& x = state[tile][s];
        mma16816(held[tile], {x.x, x.y, x.z, x.w}, low, high);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        sums[tile][2 * e] = dr::begin_write(gamma, held[tile][2 * e], v[tile][e]);
        sums[tile][2 * e + 1] = dr::begin_output(gamma, held[tile][2 * e + 1]);
      }
  }
  __syncthreads();
  for (int rows = 0; rows < d.block; ++rows) d.add_rows(sums, rows);
  d.write_row(dr::without_sign_of_zero(d.of_my_column(sums, 0)), beta);
  d.add_rows(sums, d.block);
  h.o(0)[threadIdx.x] = cn::store<bf>(dr::without_sign_of_zero(d.of_my_column(sums, 1)));
  if (place == kChunk - 1) d.next_state(gamma, h.slot(c.pages.from, sequence), h.slot(c.pages.to, sequence));
}

}  // namespace

void delta_rule_decode(Ctx& ctx, const DeltaCall& c) {
  launch(ctx.lane, decode_kernel, dim3(static_cast<unsigned>(c.heads.value_heads), c.S), dim3(kThreads), 0,
         c);
}

}  // namespace temper::cuda
