// Causal attention of many query rows: packed sequences (training, scoring) and chunks over pages (prefill).
// Persistent blocks of three warpgroups: one producer warp (TMA; tiles by an atomic counter, longest first)
// and two consumers of 64 query rows each. S(j+1) = Q K(j+1)^T and O += P(j) V(j) are issued together, then
// the softmax of S(j+1); the other consumer's products fill that time. The loop runs split by split; the
// first step of a split also merges the finished accumulator into one parked in registers (dh 64), shared
// memory (dh 128) or global memory (dh 256). The first Q K^T of the next tile runs under the epilogue of this
// one, but for heads of 256, whose Q stays in shared memory. See attention.md.

#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/device/wgmma_wide.cuh"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
namespace cn = canonical;

constexpr int kThreads = 384;

struct PrefillArguments {
  AttentionCall a;
  const Tile* tiles;
  TileList* list;
  float* park;  // [blocks of threads, kTileRows, D], heads of 256 only
};

/// kTile: a block of keys. kHalf: 64 columns of it. kOut: columns that a warp stages for its way out.
template <int D>
struct Smem {
  static constexpr bool kQInRegisters = D < 256, kParkInGlobal = D == 256;
  static constexpr int kKeys = key_block(D), kHalf = kKeys * 128, kTile = kKeys * D * 2, kStages = 2;
  static constexpr int kQBytes = kTileRows * D * 2, kQBox = kQInRegisters ? kTileRows : 64;
  static constexpr int kOut = D < 128 ? D : 128, kOwn = kParkInGlobal ? 16 * kOut * 2 : 16 * D * 4;
  static constexpr int kQ = 0, kK = kQBytes, kV = kK + kStages * kTile, kPark = kV + kStages * kTile,
                       kBars = kPark + 8 * kOwn, kBytes = kBars + 256;
  static_assert(kBytes <= 227 * 1024);
};

/// Shared-memory addresses of the barriers; two of each but the first three.
struct Bars {
  uint32_t q_full, q_empty, v_tail, k_full, k_empty, v_full, v_empty, t_full, t_empty;
  TEMPER_DEVICE explicit Bars(uint32_t at)
      : q_full(at),
        q_empty(at + 8),
        v_tail(at + 16),
        k_full(at + 24),
        k_empty(at + 40),
        v_full(at + 56),
        v_empty(at + 72),
        t_full(at + 88),
        t_empty(at + 104) {}
  TEMPER_DEVICE void init() const {
    constexpr int kConsumerWarps = 8;
    mbar_init(q_full, 1);
    mbar_init(q_empty, kConsumerWarps);
    mbar_init(v_tail, 1);
    for (int i = 0; i < 2; i++) {
      mbar_init(k_full + 8 * i, 1);
      mbar_init(k_empty + 8 * i, kConsumerWarps);
      mbar_init(v_full + 8 * i, 1);
      mbar_init(v_empty + 8 * i, kConsumerWarps);
      mbar_init(t_full + 8 * i, 1);
      mbar_init(t_empty + 8 * i, kConsumerWarps);
    }
    fence_barrier_init();
  }
};

struct Maps {
  const CUtensorMap *q, *k, *v;
};

/// The producer warp: feeds tiles, Q, K and V.
template <int D>
struct Producer {
  using SM = Smem<D>;
  const PrefillArguments& args;
  Maps maps;
  Bars bars;
  uint32_t smem;
  int lane;
  uint32_t nk = 0, nv = 0, tails = 0;

  /// Block j of keys (or values) of a tile to `dst`: one copy of packed rows, or one per piece of a page.
  TEMPER_DEVICE void copy_block(uint32_t dst, const CUtensorMap* map, uint32_t bar, const Tile& tile,
                                int kv_head, int j) const {
    if (lane == 0) mbar_expect(bar, SM::kTile);
    if (!args.a.paged) {
      if (lane == 0) tma_4d(dst, map, bar, 0, tile.kv_row + j * SM::kKeys, 0, kv_head);
      return;
    }
    const AttentionPages& pages = args.a.pages;
    const int rows = rows_per_copy(pages.page_tokens);
    const int pieces = SM::kKeys / rows;
    __syncwarp();
    for (int i = lane; i < pieces * (D / 64); i += 32) {
      const int half = i / pieces, first = i % pieces * rows;
      const int row = page_row(pages, args.a.kv_heads, tile.sequence, kv_head, j * SM::kKeys + first);
      tma_3d(dst + half * SM::kHalf + first * 128, map, bar, 0, row, half);
    }
    __syncwarp();
  }

  TEMPER_DEVICE void copy_keys(const Tile& tile, int kv_head, int j) {
    const uint32_t stage = nk & 1;
    mbar_wait(bars.k_empty + 8 * stage, (nk >> 1 & 1) ^ 1);
    nk++;
    copy_block(smem + SM::kK + stage * SM::kTile, maps.k, bars.k_full + 8 * stage, tile, kv_head, j);
  }

  TEMPER_DEVICE void copy_values(const Tile& tile, int kv_head, int j) {
    const uint32_t stage = nv & 1, dst = smem + SM::kV + stage * SM::kTile;
    mbar_wait(bars.v_empty + 8 * stage, (nv >> 1 & 1) ^ 1);
    nv++;
    const bool tail = (j + 1) * SM::kKeys > tile.kv_len;
    copy_block(dst, maps.v, tail ? bars.v_tail : bars.v_full + 8 * stage, tile, kv_head, j);
    if (!tail) return;
    // The block runs past the sequence: zero those rows of V, which may hold NaN (0 * NaN is NaN).
    mbar_wait(bars.v_tail, tails++ & 1);
    for (int r = tile.kv_len - j * SM::kKeys + (lane >> 3); r < SM::kKeys; r += 4)
      for (int half = 0; half < D / 64; half++)
        asm volatile(
            "st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(dst + half * SM::kHalf + r * 128 + (lane & 7) * 16),
            "r"(0)
            : "memory");
    fence_async();
    __syncwarp();
    if (lane == 0) mbar_arrive(bars.v_full + 8 * stage);
  }

  TEMPER_DEVICE void run(volatile int* slots) {
    const int heads = args.a.q_heads, group = heads / args.a.kv_heads;
    const int items = args.list->num_tiles * heads;
    int item = blockIdx.x;
    for (int n = 0;; n++) {
      mbar_wait(bars.t_empty + 8 * (n & 1), (n >> 1 & 1) ^ 1);
      if (lane == 0) {
        slots[n & 1] = item < items ? item : -1;
        mbar_arrive(bars.t_full + 8 * (n & 1));
      }
      if (item >= items) return;
      int next = 0;
      if (lane == 0) next = gridDim.x + atomicAdd(&args.list->next, 1);
      const Tile tile = args.tiles[item / heads];
      const int head = item % heads, kv_head = head / group, blocks = tile.blocks(SM::kKeys);
      mbar_wait(bars.q_empty, (n & 1) ^ 1);
      if (lane == 0) {
        mbar_expect(bars.q_full, SM::kQBytes);
        for (int r = 0; r < kTileRows; r += SM::kQBox)
          tma_4d(smem + SM::kQ + r * D * 2, maps.q, bars.q_full, 0, tile.q_row + r, 0, head);
      }
      for (int j = 0; j <= blocks; j++) {
        if (j < blocks) copy_keys(tile, kv_head, j);
        if (j > 0) copy_values(tile, kv_head, j - 1);
      }
      item = __shfl_sync(~0u, next, 0);
    }
  }
};

/// One consumer warpgroup: 64 query rows. A thread holds rows g and g + 8 of its warp's 16 (index e = 0, 1).
template <int D>
struct Consumer {
  using SM = Smem<D>;
  static constexpr bool kParkInRegisters = D == 64;  // which leaves registers for the merged accumulator

  const PrefillArguments& args;
  Bars bars;
  uint32_t smem;
  int wg, warp, lane, g, t;
  float4* park;    // this warp's 16 x D floats
  uint8_t* stage;  // of its output rows; the same memory, unless that is global
  volatile int* slots;

  static constexpr int kScores = SM::kKeys / 2;

  float o[D / 2], s[kScores], merged_o[kParkInRegisters ? D / 2 : 1];
  uint32_t p[kScores / 2], q[SM::kQInRegisters ? D / 4 : 1];
  uint32_t nk = 0, nv = 0;
  float mc[2], l[2], dec[2], all_mc[2], all_l[2];
  bool have;  // a finished split is parked
  int in_split;

  TEMPER_DEVICE int fetch(int n) {
    mbar_wait(bars.t_full + 8 * (n & 1), n >> 1 & 1);
    int item = 0;
    if (lane == 0) {  // the one that reads is the one that arrives
      item = slots[n & 1];
      mbar_arrive(bars.t_empty + 8 * (n & 1));
    }
    return __shfl_sync(~0u, item, 0);
  }

  /// Past the last tile: loads stale data for one product that nobody uses.
  TEMPER_DEVICE void load_q(int n, bool real) {
    if (real) mbar_wait(bars.q_full, n & 1);
    if constexpr (SM::kQInRegisters) copy_q(real);
  }
  TEMPER_DEVICE void copy_q(bool real) {
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++) {
      const int r = wg * 64 + warp * 16 + (lane & 15), chunk = kk * 2 + (lane >> 4);
      uint32_t a[4];
      ldsm4(a, smem + SM::kQ + (chunk >> 3) * (SM::kQBox * 128) + r * 128 + (((chunk & 7) ^ (r & 7)) << 4));
#pragma unroll
      for (int e = 0; e < 4; e++) q[4 * kk + e] = a[e];
    }
    __syncwarp();
    if (lane == 0 && real) mbar_arrive(bars.q_empty);
  }

  TEMPER_DEVICE void issue_scores() {
    const uint64_t k = smem_descriptor(smem + SM::kK, 16, 1024) + (nk & 1) * (SM::kTile >> 4);
    wg_fence();
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++) {
      const int at = ((kk >> 2) * SM::kHalf + (kk & 3) * 32) >> 4;
      if constexpr (SM::kQInRegisters)
        wgmma_rs(s, q + 4 * kk, k + at, kk > 0);
      else  // boxes of Q and blocks of keys have the same 64 rows
        wgmma_ss(s, smem_descriptor(smem + SM::kQ + wg * SM::kTile, 16, 1024) + at, k + at, kk > 0);
    }
    wg_commit();
  }

  TEMPER_DEVICE void issue_values(int keep) {
    const uint64_t v = smem_descriptor(smem + SM::kV, SM::kHalf, 1024) + (nv & 1) * (SM::kTile >> 4);
    wg_fence();
#pragma unroll
    for (int kk = 0; kk < SM::kKeys / 16; kk++)
      wgmma_rs_transposed(o, p + 4 * kk, v + kk * 128, kk > 0 ? 1 : keep);
    wg_commit();
  }

  TEMPER_DEVICE void release_keys() {
    if (lane == 0) mbar_arrive(bars.k_empty + 8 * (nk & 1));
    nk++;
  }
  TEMPER_DEVICE void release_values() {
    if (lane == 0) mbar_arrive(bars.v_empty + 8 * (nv & 1));
    nv++;
  }

  /// Scores of block j -> probabilities in s, and the row state. Blocks before `full` have no masked key.
  TEMPER_DEVICE void softmax(int j, int full, int position) {
    if (j >= full) {
#pragma unroll
      for (int i = 0; i < kScores; i++)
        if (j * SM::kKeys + (i >> 2) * 8 + 2 * t + (i & 1) > position + 8 * (i >> 1 & 1))
          s[i] = cn::neg_inf();
    }
    float mx[2], b[2], sum[2] = {0.f, 0.f};
#pragma unroll
    for (int e = 0; e < 2; e++) {
      float m0 = fmaxf(s[2 * e], s[2 * e + 1]), m1 = fmaxf(s[2 * e + 4], s[2 * e + 5]);
#pragma unroll
      for (int i = 2; i < SM::kKeys / 8; i += 2) {
        m0 = fmaxf(m0, fmaxf(s[4 * i + 2 * e], s[4 * i + 2 * e + 1]));
        m1 = fmaxf(m1, fmaxf(s[4 * i + 4 + 2 * e], s[4 * i + 5 + 2 * e]));
      }
      mx[e] = fmaxf(m0, m1);
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
      mx[e] = fmaxf(mx[e], __shfl_xor_sync(~0u, mx[e], 1));
      mx[e] = fmaxf(mx[e], __shfl_xor_sync(~0u, mx[e], 2));
      const float new_mc = cn::new_max(mc[e], mx[e], args.a.c);
      b[e] = cn::base(new_mc);
      dec[e] = cn::decay(mc[e], b[e]);
      mc[e] = new_mc;
    }
#pragma unroll
    for (int i = 0; i < kScores; i++) {
      const int e = i >> 1 & 1;
      s[i] = cn::prob(s[i], args.a.c, b[e]);
      sum[e] = cn::add_p(sum[e], s[i]);
    }
#pragma unroll
    for (int e = 0; e < 2; e++) l[e] = cn::add_block(l[e], dec[e], sum[e]);
  }

  TEMPER_DEVICE void pack_probabilities() {
#pragma unroll
    for (int i = 0; i < kScores / 2; i++) p[i] = cn::pack(s[2 * i], s[2 * i + 1]);
  }

  /// The finished split with maxima pm and partial sums pl joins the parked result.
  TEMPER_DEVICE void park_split(float (&pm)[2], float (&pl)[2]) {
    pl[0] = cn::quad_sum(pl[0]);
    pl[1] = cn::quad_sum(pl[1]);
    if (!have) {
      have = true;
#pragma unroll
      for (int e = 0; e < 2; e++) all_mc[e] = pm[e], all_l[e] = pl[e];
#pragma unroll
      for (int i = 0; i < D / 8; i++) {
        if constexpr (kParkInRegisters) {
#pragma unroll
          for (int e = 0; e < 4; e++) merged_o[4 * i + e] = o[4 * i + e];
        } else {
          park[i * 32] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
        }
      }
      return;
    }
    const cn::Merge w0 = cn::merge(all_mc[0], pm[0]), w1 = cn::merge(all_mc[1], pm[1]);
    all_mc[0] = w0.mc, all_mc[1] = w1.mc;
    all_l[0] = cn::merged(w0, all_l[0], pl[0]), all_l[1] = cn::merged(w1, all_l[1], pl[1]);
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      if constexpr (kParkInRegisters) {
#pragma unroll
        for (int e = 0; e < 4; e++)
          merged_o[4 * i + e] = cn::merged(e < 2 ? w0 : w1, merged_o[4 * i + e], o[4 * i + e]);
      } else {
        const float4 x = park[i * 32];
        park[i * 32] = make_float4(cn::merged(w0, x.x, o[4 * i]), cn::merged(w0, x.y, o[4 * i + 1]),
                                   cn::merged(w1, x.z, o[4 * i + 2]), cn::merged(w1, x.w, o[4 * i + 3]));
      }
    }
  }

  /// Block j, while the values of block j - 1 are multiplied; kOpens: j is the first block of a split.
  template <bool kOpens>
  TEMPER_DEVICE void step(int j, int full, int position) {
    mbar_wait(bars.k_full + 8 * (nk & 1), nk >> 1 & 1);
    issue_scores();
    mbar_wait(bars.v_full + 8 * (nv & 1), nv >> 1 & 1);
    issue_values(in_split);
    wg_wait<1>();
    pin(s);
    release_keys();
    float pm[2] = {mc[0], mc[1]}, pl[2] = {l[0], l[1]};
    if (kOpens) {
      mc[0] = mc[1] = cn::neg_inf();
      l[0] = l[1] = 0.f;
    }
    softmax(j, full, position);
    wg_wait<0>();
    pin(o);
    pin(p);
    release_values();
    if (kOpens) {
      in_split = 0;
      park_split(pm, pl);
    } else {
      in_split++;
#pragma unroll
      for (int i = 0; i < D / 2; i++) o[i] = cn::rescale(o[i], dec[i >> 1 & 1]);
    }
    pack_probabilities();
  }

  /// The last split joins the parked ones; o, mc and l are those of the whole row then.
  TEMPER_DEVICE void finish_row() {
    l[0] = cn::quad_sum(l[0]);
    l[1] = cn::quad_sum(l[1]);
    if (!have) return;
    const cn::Merge w0 = cn::merge(all_mc[0], mc[0]), w1 = cn::merge(all_mc[1], mc[1]);
    mc[0] = w0.mc, mc[1] = w1.mc;
    l[0] = cn::merged(w0, all_l[0], l[0]), l[1] = cn::merged(w1, all_l[1], l[1]);
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      if constexpr (kParkInRegisters) {
#pragma unroll
        for (int e = 0; e < 4; e++)
          o[4 * i + e] = cn::merged(e < 2 ? w0 : w1, merged_o[4 * i + e], o[4 * i + e]);
      } else {
        const float4 x = park[i * 32];
        o[4 * i] = cn::merged(w0, x.x, o[4 * i]);
        o[4 * i + 1] = cn::merged(w0, x.y, o[4 * i + 1]);
        o[4 * i + 2] = cn::merged(w1, x.z, o[4 * i + 2]);
        o[4 * i + 3] = cn::merged(w1, x.w, o[4 * i + 3]);
      }
    }
  }

  /// Through shared memory, so that rows leave in whole 16-byte chunks.
  TEMPER_DEVICE void write_rows(const Tile& tile, int head) {
    const float i0 = cn::inverse(l[0]), i1 = cn::inverse(l[1]);
    const int r0 = wg * 64 + warp * 16;
    if (t == 0 && args.a.lse != nullptr) {
      float* lse = args.a.lse + int64_t{head} * args.a.T + tile.q_row + r0;
      if (r0 + g < tile.q_rows) lse[g] = cn::attention_lse(mc[0], l[0]);
      if (r0 + g + 8 < tile.q_rows) lse[g + 8] = cn::attention_lse(mc[1], l[1]);
    }
    constexpr int kRow = 2 * SM::kOut, kChunks = SM::kOut / 8, kRows = 32 / kChunks;
    // kChunks: 16-byte chunks of a staged row, kRows: rows of a pass
#pragma unroll
    for (int part = 0; part < D / SM::kOut; part++) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kChunks; i++) {
        const float* x = o + 4 * (part * kChunks + i);
        uint8_t* to = stage + g * kRow + ((i ^ g) << 4) + t * 4;
        *reinterpret_cast<uint32_t*>(to) = cn::pack(cn::finish(x[0], i0), cn::finish(x[1], i0));
        *reinterpret_cast<uint32_t*>(to + 8 * kRow) = cn::pack(cn::finish(x[2], i1), cn::finish(x[3], i1));
      }
      __syncwarp();
#pragma unroll
      for (int pass = 0; pass < 16 / kRows; pass++) {
        const int r = pass * kRows + lane / kChunks, chunk = lane % kChunks;
        const uint4 x = *reinterpret_cast<const uint4*>(stage + r * kRow + ((chunk ^ (r & 7)) << 4));
        bf* out = static_cast<bf*>(args.a.out) + (int64_t{tile.q_row + r0 + r} * args.a.q_heads + head) * D +
                  part * SM::kOut;
        if (r0 + r < tile.q_rows) *reinterpret_cast<uint4*>(out + chunk * 8) = x;
      }
    }
    __syncwarp();
  }

  /// The tile after n - 1 of them, and its first scores, which are still computed behind this.
  TEMPER_DEVICE int begin_tile(int n) {
    const int item = fetch(n);
    load_q(n, item >= 0);
    if (item >= 0) mbar_wait(bars.k_full + 8 * (nk & 1), nk >> 1 & 1);
    issue_scores();
    return item;
  }

  TEMPER_DEVICE void run() {
    constexpr int kSplitBlocks = cn::kSplit / SM::kKeys;
    int item = begin_tile(0);
    for (int n = 0; item >= 0; n++) {
      const Tile tile = args.tiles[item / args.a.q_heads];
      const int head = item % args.a.q_heads, blocks = tile.blocks(SM::kKeys);
      const int full = (tile.q_pos + wg * 64 + 1) / SM::kKeys,
                position = tile.q_pos + wg * 64 + warp * 16 + g;
      mc[0] = mc[1] = cn::neg_inf();
      l[0] = l[1] = 0.f;
      have = false;
      in_split = 0;
      wg_wait<0>();
      pin(s);
      release_keys();
      softmax(0, full, position);
      pack_probabilities();
      for (int j = 1, end = kSplitBlocks;; end += kSplitBlocks) {
        for (; j < min(end, blocks); j++) step<false>(j, full, position);
        if (j >= blocks) break;
        step<true>(j++, full, position);
      }
      if (!SM::kQInRegisters && lane == 0) mbar_arrive(bars.q_empty);
      mbar_wait(bars.v_full + 8 * (nv & 1), nv >> 1 & 1);
      issue_values(in_split);
      if constexpr (SM::kQInRegisters) {
        item = begin_tile(n + 1);
        wg_wait<1>();
      } else {
        wg_wait<0>();
      }
      pin(o);
      pin(p);
      release_values();
      finish_row();
      write_rows(tile, head);
      if constexpr (!SM::kQInRegisters) item = begin_tile(n + 1);
    }
    wg_wait<0>();
  }
};

template <int D>
__global__ void __launch_bounds__(kThreads, 1)
    prefill_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map, const __grid_constant__ PrefillArguments args) {
  if (args.a.beside) {  // what comes before is complete when the decode kernel begins, which does not wait
    wait_for_previous_kernel();
    launch_dependents();
  } else {
    begin_kernel();
  }
  using SM = Smem<D>;
  extern __shared__ __align__(1024) uint8_t smem[];
  const uint32_t base = smem_u32(smem);
  const Bars bars(base + SM::kBars);
  volatile int* slots = reinterpret_cast<volatile int*>(smem + SM::kBars + 128);
  const int group = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) {
    bars.init();
    tma_prefetch_map(&q_map);
    tma_prefetch_map(&k_map);
    tma_prefetch_map(&v_map);
  }
  __syncthreads();
  if (group == 0) {
    reg_dec<24>();
    if (warp == 0) Producer<D>{args, {&q_map, &k_map, &v_map}, bars, base, lane}.run(slots);
  } else {
    reg_inc<240>();
    const int wg = group - 1;
    const int index = wg * 4 + warp;
    uint8_t* own = smem + SM::kPark + index * SM::kOwn;
    float4* park = reinterpret_cast<float4*>(own) + lane;
    if constexpr (SM::kParkInGlobal)
      park = reinterpret_cast<float4*>(args.park + (int64_t{blockIdx.x} * 8 + index) * (16 * D)) + lane;
    Consumer<D> consumer{args, bars, base, wg, warp, lane, lane >> 2, lane & 3, park, own, slots};
    consumer.run();
  }
}

/// Heads of packed qkv rows as (64 columns, rows, dh / 64, heads).
CUtensorMap packed_map(const Libraries& libraries, const AttentionCall& a, int first_head, int heads,
                       int box_rows) {
  const auto width = static_cast<uint64_t>(a.row_width()), dim = static_cast<uint64_t>(a.head_dim);
  return libraries.tensor_map(
      static_cast<const bf*>(a.qkv) + int64_t{first_head} * a.head_dim,
      {64, static_cast<uint64_t>(a.T), dim / 64, static_cast<uint64_t>(heads)}, {width * 2, 128, dim * 2},
      {64, static_cast<uint32_t>(box_rows), static_cast<uint32_t>(a.head_dim / 64), 1});
}

template <int D>
void run(const Libraries& libraries, PrefillArguments args, int most_tiles) {
  using SM = Smem<D>;
  const AttentionCall& a = args.a;
  const int box = rows_per_copy(a.paged ? a.pages.page_tokens : 64);
  const auto keys = [&](const void* pages, int first_head) {
    return a.paged ? page_map(libraries, pages, a, box)
                   : packed_map(libraries, a, first_head, a.kv_heads, SM::kKeys);
  };
  const CUtensorMap q = packed_map(libraries, a, 0, a.q_heads, SM::kQBox), k = keys(a.pages.keys, a.q_heads),
                    v = keys(a.pages.values, a.q_heads + a.kv_heads);
  int blocks = std::min(libraries.multiprocessors(), most_tiles * a.q_heads);
  if constexpr (SM::kParkInGlobal) {  // in the workspace of the lane, which nobody else uses meanwhile
    args.park = static_cast<float*>(libraries.workspace());
    blocks = std::min(blocks, static_cast<int>(Libraries::kWorkspaceBytes / (kTileRows * D * 4)));
  }
  allow_shared_memory(prefill_kernel<D>, SM::kBytes);
  launch(libraries.lane(), prefill_kernel<D>, blocks, kThreads, SM::kBytes, q, k, v, args);
}

}  // namespace

void attention_prefill(Ctx& ctx, const AttentionCall& a) {
  if (a.T == 0) return;
  const TilesOfCall made = list_tiles(ctx, a);
  const PrefillArguments args{a, made.tiles, made.list, nullptr};
  if (a.head_dim == 256)
    run<256>(libraries_of(ctx), args, made.most);
  else if (a.head_dim == 128)
    run<128>(libraries_of(ctx), args, made.most);
  else
    run<64>(libraries_of(ctx), args, made.most);
}

}  // namespace temper::cuda
