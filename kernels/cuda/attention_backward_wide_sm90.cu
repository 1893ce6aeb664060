// Backward of packed causal attention with heads of 256, deterministic (NUMERICS.md), in two kernels that
// both compute the probabilities anew, so that every sum has one owner. dK and dV of 64 keys fill the
// registers of two warpgroups, dQ of 128 queries those of two others. Blocks of threads of three warpgroups,
// one item each, those with most steps first:
//   dK, dV   64 keys of one kv head, over the query blocks from the last to the diagonal, all query heads of
//            the group at each. 0: the producer warp; 1: S^T and dV; 2: dP^T and dK; P^T goes from 1 to 2.
//   dQ       128 queries of one head, over the key blocks from the first to the diagonal. 0: the producer
//            warp; 1, 2: 64 queries each. S and dP of the next block are issued behind dQ of this one.

#include "kernels/cuda/attention_backward_lists.cuh"
#include "kernels/cuda/device/wgmma_wide.cuh"

namespace temper::cuda {
namespace backward {
namespace {

namespace wide {

constexpr int kDim = 256, kRows = 64;                          // features; queries or keys of a block
constexpr int kHalf = kRows * 128, kBlock = kRows * kDim * 2;  // bytes of 64 columns of a block, and of all
constexpr int kThreads = 384, kConsumerWarps = 8, kProducerRegisters = 24, kConsumerRegisters = 240;

struct Arguments {
  bf* dqkv;
  const Tile* tiles;  // 128 rows each, those that meet most blocks first
  const List* list;
  const float *lse, *delta;  // [q_heads, padded]: -lse * log2(e), rowsum(dout * out)
  int q_heads, kv_heads, group, padded;
  float c, scale;

  TEMPER_DEVICE int64_t row_width() const { return int64_t{q_heads + 2 * kv_heads} * kDim; }
};

struct Maps {
  const CUtensorMap *qkv, *dout;
};

// ---- products

/// x = A B^T of two blocks in shared memory.
TEMPER_DEVICE void issue_scores(float (&x)[32], uint32_t a, uint32_t b) {
  const uint64_t da = smem_descriptor(a, 16, 1024), db = smem_descriptor(b, 16, 1024);
  wg_fence();
#pragma unroll
  for (int kk = 0; kk < kDim / 16; kk++) {
    const int at = ((kk >> 2) * kHalf + (kk & 3) * 32) >> 4;
    wgmma_ss(x, da + at, db + at, kk > 0);
  }
  wg_commit();
}
/// sum = (keep ? sum : 0) + F B, B a block in shared memory.
TEMPER_DEVICE void issue_sum(float (&sum)[128], const uint32_t (&f)[16], uint32_t b, int keep) {
  const uint64_t db = smem_descriptor(b, kHalf, 1024);
  wg_fence();
#pragma unroll
  for (int kk = 0; kk < kRows / 16; kk++)
    wgmma_rs_transposed(sum, f + 4 * kk, db + kk * 128, kk > 0 ? 1 : keep);
  wg_commit();
}
TEMPER_DEVICE float low(uint32_t both) { return __uint_as_float(both << 16); }
TEMPER_DEVICE float high(uint32_t both) { return __uint_as_float(both & 0xffff0000u); }

/// The 16 rows of this warp, times a factor, through 16 rows of a block of shared memory that nobody else
/// touches, so that they leave in whole 16-byte chunks; `left` of them exist.
TEMPER_DEVICE void write_rows(const float (&x)[128], float factor, uint8_t* stage, bf* to, int64_t width,
                              int left) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int i = 0; i < kDim / 8; i++) {
    uint8_t* at = stage + (i >> 3) * kHalf + g * 128 + (((i & 7) ^ g) << 4) + t * 4;
    *reinterpret_cast<uint32_t*>(at) =
        canonical::pack(__fmul_rn(x[4 * i], factor), __fmul_rn(x[4 * i + 1], factor));
    *reinterpret_cast<uint32_t*>(at + 1024) =
        canonical::pack(__fmul_rn(x[4 * i + 2], factor), __fmul_rn(x[4 * i + 3], factor));
  }
  __syncwarp();
#pragma unroll
  for (int r = 0; r < 16; r++) {
    const uint4 v = *reinterpret_cast<const uint4*>(stage + (lane >> 3) * kHalf + r * 128 +
                                                    (((lane & 7) ^ (r & 7)) << 4));
    if (r < left) *reinterpret_cast<uint4*>(to + r * width + lane * 8) = v;
  }
}

// ---- the producer warps

/// Copies blocks of 64 rows. Rows beyond a sequence become zero where they would reach a sum: they may hold
/// NaN, and 0 * NaN is NaN.
struct Copier {
  uint32_t tail_bar;
  int lane;
  uint32_t tails = 0;

  /// `bar` completes when the block is there, and `stats` with it: 64 floats from `from`, if any. `exist`:
  /// rows of the block that exist, or more.
  TEMPER_DEVICE void load(uint32_t to, const CUtensorMap* map, int row, int head, uint32_t bar, int exist,
                          uint32_t stats = 0, const float* from = nullptr) {
    const bool tail = exist < kRows;
    const uint32_t more = from == nullptr ? 0 : kRows * 4;
    if (lane == 0) {
      if (tail) {
        mbar_expect(tail_bar, kBlock);
        if (more > 0) mbar_expect_more(bar, more);
      } else {
        mbar_expect(bar, kBlock + more);
      }
      tma_4d(to, map, tail ? tail_bar : bar, 0, row, 0, head);
      if (more > 0) bulk_load(stats, from, more, bar);
    }
    __syncwarp();
    if (!tail) return;
    mbar_wait(tail_bar, tails++ & 1);
    for (int r = exist; r < kRows; r++)
      asm volatile(
          "st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(to + (lane >> 3) * kHalf + r * 128 + (lane & 7) * 16),
          "r"(0)
          : "memory");
    fence_async();
    __syncwarp();
    if (lane == 0) mbar_arrive(bar);
  }
};

// ---- dK and dV

/// Offsets into shared memory.
struct KeySmem {
  static constexpr int kK = 0, kV = kBlock, kQ = 2 * kBlock, kDo = 4 * kBlock, kP = 6 * kBlock,
                       kPBytes = 8192, kStats = kP + 2 * kPBytes, kBars = kStats + 2 * kRows * 8,
                       kBytes = kBars + 128;
  static_assert(kBytes <= 227 * 1024);
};
/// Barriers; two of each but the first three.
struct KeyBars {
  uint32_t at;
  TEMPER_DEVICE uint32_t k_full() const { return at; }
  TEMPER_DEVICE uint32_t v_full() const { return at + 8; }
  TEMPER_DEVICE uint32_t tail() const { return at + 16; }
  TEMPER_DEVICE uint32_t q_full(int i) const { return at + 24 + 8 * i; }
  TEMPER_DEVICE uint32_t q_empty(int i) const { return at + 40 + 8 * i; }
  TEMPER_DEVICE uint32_t do_full(int i) const { return at + 56 + 8 * i; }
  TEMPER_DEVICE uint32_t do_empty(int i) const { return at + 72 + 8 * i; }
  TEMPER_DEVICE uint32_t p_full(int i) const { return at + 88 + 8 * i; }
  TEMPER_DEVICE uint32_t p_empty(int i) const { return at + 104 + 8 * i; }
  TEMPER_DEVICE void init() const {
    mbar_init(k_full(), 1), mbar_init(v_full(), 1), mbar_init(tail(), 1);
    for (int i = 0; i < 2; i++) {
      mbar_init(q_full(i), 1), mbar_init(q_empty(i), kConsumerWarps);
      mbar_init(do_full(i), 1), mbar_init(do_empty(i), kConsumerWarps);
      mbar_init(p_full(i), kConsumerWarps / 2), mbar_init(p_empty(i), kConsumerWarps / 2);
    }
    fence_barrier_init();
  }
};

/// 64 keys of one kv head and the blocks of queries that see them.
struct KeyItem {
  Tile tile;
  int key, kv_head, first, last;  // first key in the sequence; query blocks last .. first (descending)
  TEMPER_DEVICE int steps(int group) const { return (last - first + 1) * group; }
};

TEMPER_DEVICE void load_queries(const Arguments& args, const KeyItem& item, const Maps& maps, KeyBars bars,
                                uint32_t smem, int lane) {
  using SM = KeySmem;
  Copier copier{bars.tail(), lane};
  const int row = item.tile.row + item.key, head = args.q_heads + item.kv_head;
  copier.load(smem + SM::kK, maps.qkv, row, head, bars.k_full(), kRows);
  copier.load(smem + SM::kV, maps.qkv, row, head + args.kv_heads, bars.v_full(), kRows);
  Ring r;
  for (int m = item.last; m >= item.first; m--)
    for (int h = 0; h < args.group; h++) {
      const int q_head = item.kv_head * args.group + h, at = m * kRows;
      const int64_t stat = int64_t{q_head} * args.padded + item.tile.pad + at;
      const uint32_t stats = smem + SM::kStats + r.i * kRows * 8;
      mbar_wait(bars.q_empty(r.i), r.phase ^ 1);
      copier.load(smem + SM::kQ + r.i * kBlock, maps.qkv, item.tile.row + at, q_head, bars.q_full(r.i),
                  item.tile.len - at, stats, args.lse + stat);
      mbar_wait(bars.do_empty(r.i), r.phase ^ 1);
      copier.load(smem + SM::kDo + r.i * kBlock, maps.dout, item.tile.row + at, q_head, bars.do_full(r.i),
                  item.tile.len - at, stats + kRows * 4, args.delta + stat);
      r.next<2>();
    }
}

/// The warpgroup of S^T and dV (kValues), or that of dP^T and dK. A thread holds keys g and g + 8 of 16 of
/// its warp. x: S^T or dP^T. f: P^T or dS^T.
template <bool kValues>
struct KeyGroup {
  using SM = KeySmem;
  const Arguments& args;
  KeyBars bars;
  uint32_t smem;
  int thread, warp, lane;  // of the warpgroup, of it, of the warp

  float x[32], sum[128];
  uint32_t f[16];

  static constexpr int kLeft = kValues ? SM::kK : SM::kV, kRight = kValues ? SM::kQ : SM::kDo,
                       kAdded = kValues ? SM::kDo : SM::kQ;

  TEMPER_DEVICE uint32_t right_full(int i) const { return kValues ? bars.q_full(i) : bars.do_full(i); }
  TEMPER_DEVICE uint32_t right_empty(int i) const { return kValues ? bars.q_empty(i) : bars.do_empty(i); }
  TEMPER_DEVICE uint32_t added_full(int i) const { return kValues ? bars.do_full(i) : bars.q_full(i); }
  TEMPER_DEVICE uint32_t added_empty(int i) const { return kValues ? bars.do_empty(i) : bars.q_empty(i); }
  TEMPER_DEVICE void arrive(uint32_t bar) const {
    __syncwarp();
    if (lane == 0) mbar_arrive(bar);
  }
  TEMPER_DEVICE uint32_t stats(int i) const {
    return smem + SM::kStats + i * kRows * 8 + (kValues ? 0 : kRows * 4) + (lane & 3) * 8;
  }
  TEMPER_DEVICE uint32_t exchange(int i) const { return smem + SM::kP + i * SM::kPBytes + thread * 16; }

  /// S^T to P^T, which the other warpgroup gets too.
  TEMPER_DEVICE void probabilities(const Ring& r, bool diagonal) {
    if (diagonal) {
      const int key = warp * 16 + (lane >> 2) - 2 * (lane & 3);
#pragma unroll
      for (int i = 0; i < 32; i++)
        if (key + 8 * (i >> 1 & 1) > (i >> 2) * 8 + (i & 1)) x[i] = canonical::neg_inf();
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const float2 l = lds2(stats(r.i) + i * 32);
#pragma unroll
      for (int e = 0; e < 2; e++)
        f[2 * i + e] = canonical::pack(canonical::exp2a(__fmaf_rn(x[4 * i + 2 * e], args.c, l.x)),
                                       canonical::exp2a(__fmaf_rn(x[4 * i + 2 * e + 1], args.c, l.y)));
    }
    mbar_wait(bars.p_empty(r.i), r.phase ^ 1);
#pragma unroll
    for (int i = 0; i < 4; i++)
      asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(exchange(r.i) + i * 2048), "r"(f[4 * i]),
                   "r"(f[4 * i + 1]), "r"(f[4 * i + 2]), "r"(f[4 * i + 3])
                   : "memory");
    arrive(bars.p_full(r.i));
  }

  /// dP^T to dS^T, with P^T from the other warpgroup.
  TEMPER_DEVICE void gradients(const Ring& r) {
    mbar_wait(bars.p_full(r.i), r.phase);
#pragma unroll
    for (int i = 0; i < 4; i++)
      asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(f[4 * i]), "=r"(f[4 * i + 1]), "=r"(f[4 * i + 2]), "=r"(f[4 * i + 3])
                   : "r"(exchange(r.i) + i * 2048)
                   : "memory");
    arrive(bars.p_empty(r.i));
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const float2 l = lds2(stats(r.i) + i * 32);
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const uint32_t p = f[2 * i + e];
        f[2 * i + e] = canonical::pack(__fmul_rn(low(p), __fsub_rn(x[4 * i + 2 * e], l.x)),
                                       __fmul_rn(high(p), __fsub_rn(x[4 * i + 2 * e + 1], l.y)));
      }
    }
  }

  TEMPER_DEVICE void issue(const Ring& r) {
    mbar_wait(right_full(r.i), r.phase);
    issue_scores(x, smem + kLeft, smem + kRight + r.i * kBlock);
  }

  /// No product is in flight where the loop closes.
  template <bool kMore>
  TEMPER_DEVICE void step(Ring& r, int keep, bool diagonal) {
    const int i = r.i;
    if constexpr (kValues)
      probabilities(r, diagonal);
    else
      gradients(r);
    arrive(right_empty(i));
    mbar_wait(added_full(i), r.phase);
    issue_sum(sum, f, smem + kAdded + i * kBlock, keep);
    r.next<2>();
    if constexpr (kMore) {
      issue(r);
      wg_wait<1>();
    } else {
      wg_wait<0>();
    }
    pin(f);
    arrive(added_empty(i));
    if constexpr (kMore) {
      wg_wait<0>();
      pin(x);
    }
  }

  TEMPER_DEVICE void run(const KeyItem& item, uint8_t* memory) {
    Ring r;
    int left = item.steps(args.group), keep = 0;
    mbar_wait(kValues ? bars.k_full() : bars.v_full(), 0);
    issue(r);
    wg_wait<0>();
    pin(x);
    for (; left > 1; left--, keep = 1) step<true>(r, keep, left <= args.group);
    step<false>(r, keep, true);
    pin(sum);
    bar_sync(kValues ? 1 : 2, 128);  // all warps have used the block of keys or values
    const int head = args.q_heads + (kValues ? args.kv_heads : 0) + item.kv_head, key = item.key + warp * 16;
    write_rows(sum, kValues ? 1.f : args.scale, memory + kLeft + warp * 2048,
               args.dqkv + (item.tile.row + key) * args.row_width() + head * kDim, args.row_width(),
               item.tile.len - key);
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    keys_kernel(const __grid_constant__ CUtensorMap qkv_map, const __grid_constant__ CUtensorMap dout_map,
                const __grid_constant__ Arguments args) {
  begin_kernel();
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t smem = smem_u32(memory);
  const KeyBars bars{smem + KeySmem::kBars};
  const int group = threadIdx.x >> 7, thread = threadIdx.x & 127, warp = thread >> 5, lane = thread & 31;
  const int index = blockIdx.x / args.kv_heads;  // half a tile
  if (index / 2 >= args.list->num_tiles) return;
  KeyItem item{args.tiles[index / 2], 0, static_cast<int>(blockIdx.x) % args.kv_heads, 0, 0};
  item.key = item.tile.block * kKeys + index % 2 * kRows;
  item.first = item.key / kRows;
  item.last = (item.tile.len - 1) / kRows;
  if (item.key >= item.tile.len) return;
  if (threadIdx.x == 0) {
    bars.init();
    tma_prefetch_map(&qkv_map);
    tma_prefetch_map(&dout_map);
  }
  __syncthreads();
  if (group == 0) {
    reg_dec<kProducerRegisters>();
    if (warp == 0) load_queries(args, item, {&qkv_map, &dout_map}, bars, smem, lane);
  } else {
    reg_inc<kConsumerRegisters>();
    if (group == 1) {
      KeyGroup<true> values{args, bars, smem, thread, warp, lane};
      values.run(item, memory);
    } else {
      KeyGroup<false> keys{args, bars, smem, thread, warp, lane};
      keys.run(item, memory);
    }
  }
}

// ---- dQ

struct QuerySmem {
  static constexpr int kQ = 0, kDo = 2 * kBlock, kK = 4 * kBlock, kV = 6 * kBlock, kBars = 7 * kBlock,
                       kBytes = kBars + 128;
  static_assert(kBytes <= 227 * 1024);
};
struct QueryBars {
  uint32_t at;
  TEMPER_DEVICE uint32_t q_full() const { return at; }
  TEMPER_DEVICE uint32_t do_full() const { return at + 8; }
  TEMPER_DEVICE uint32_t tail() const { return at + 16; }
  TEMPER_DEVICE uint32_t k_full(int i) const { return at + 24 + 8 * i; }
  TEMPER_DEVICE uint32_t k_empty(int i) const { return at + 40 + 8 * i; }
  TEMPER_DEVICE uint32_t v_full() const { return at + 56; }
  TEMPER_DEVICE uint32_t v_empty() const { return at + 64; }
  TEMPER_DEVICE void init() const {
    mbar_init(q_full(), 1), mbar_init(do_full(), 1), mbar_init(tail(), 1);
    mbar_init(v_full(), 1), mbar_init(v_empty(), kConsumerWarps);
    for (int i = 0; i < 2; i++) mbar_init(k_full(i), 1), mbar_init(k_empty(i), kConsumerWarps);
    fence_barrier_init();
  }
};

/// 128 queries of one head and the blocks of keys that they see.
struct QueryItem {
  Tile tile;
  int query, head, blocks;  // first query in the sequence
};

TEMPER_DEVICE void load_keys(const Arguments& args, const QueryItem& item, const Maps& maps, QueryBars bars,
                             uint32_t smem, int lane) {
  using SM = QuerySmem;
  Copier copier{bars.tail(), lane};
  const int kv_head = args.q_heads + item.head / args.group;
  const auto load_two = [&](uint32_t to, const CUtensorMap* map, uint32_t bar) {
    if (lane != 0) return;
    mbar_expect(bar, 2 * kBlock);
    for (int i = 0; i < 2; i++)
      tma_4d(to + i * kBlock, map, bar, 0, item.tile.row + item.query + i * kRows, 0, item.head);
  };
  load_two(smem + SM::kQ, maps.qkv, bars.q_full());
  Ring r;
  for (int j = 0; j < item.blocks; j++) {
    const int row = item.tile.row + j * kRows, exist = item.tile.len - j * kRows;
    mbar_wait(bars.k_empty(r.i), r.phase ^ 1);
    copier.load(smem + SM::kK + r.i * kBlock, maps.qkv, row, kv_head, bars.k_full(r.i), exist);
    if (j == 0) load_two(smem + SM::kDo, maps.dout, bars.do_full());
    mbar_wait(bars.v_empty(), (j & 1) ^ 1);
    copier.load(smem + SM::kV, maps.qkv, row, kv_head + args.kv_heads, bars.v_full(), exist);
    r.next<2>();
  }
}

/// One of the two warpgroups of 64 queries. A thread holds rows g and g + 8 of its warp's 16. x: S, y: dP, f:
/// P, then dS.
struct QueryGroup {
  using SM = QuerySmem;
  const Arguments& args;
  QueryBars bars;
  uint32_t smem;
  int wg, warp, lane;

  float x[32], y[32], sum[128], lse[2], delta[2];
  uint32_t f[16];

  TEMPER_DEVICE void arrive(uint32_t bar) const {
    __syncwarp();
    if (lane == 0) mbar_arrive(bar);
  }
  TEMPER_DEVICE void issue(const Ring& r, int j) {
    mbar_wait(bars.k_full(r.i), r.phase);
    issue_scores(x, smem + SM::kQ + wg * kBlock, smem + SM::kK + r.i * kBlock);
    mbar_wait(bars.v_full(), j & 1);
    issue_scores(y, smem + SM::kDo + wg * kBlock, smem + SM::kV);
  }
  /// `query`: of the row g, from the first key of the block on.
  TEMPER_DEVICE void probabilities(int query) {
    if (query < kRows) {
      const int key = 2 * (lane & 3) - query;
#pragma unroll
      for (int i = 0; i < 32; i++)
        if (key + (i >> 2) * 8 + (i & 1) > 8 * (i >> 1 & 1)) x[i] = canonical::neg_inf();
    }
#pragma unroll
    for (int i = 0; i < 16; i++) {
      const float l = lse[i & 1];
      f[i] = canonical::pack(canonical::exp2a(__fmaf_rn(x[2 * i], args.c, l)),
                             canonical::exp2a(__fmaf_rn(x[2 * i + 1], args.c, l)));
    }
  }
  /// What is issued last are the scores and dP of block j, and a product with block `previous` before those,
  /// if there is one.
  template <bool kFirst>
  TEMPER_DEVICE void finish_scores(int query, int previous) {
    wg_wait<1>();
    pin(x);
    if constexpr (!kFirst) {
      pin(f);
      arrive(bars.k_empty(previous));
    }
    probabilities(query);
    wg_wait<0>();
    pin(y);
    arrive(bars.v_empty());
  }
  TEMPER_DEVICE void gradients() {
#pragma unroll
    for (int i = 0; i < 16; i++) {
      const float d = delta[i & 1];
      f[i] = canonical::pack(__fmul_rn(low(f[i]), __fsub_rn(y[2 * i], d)),
                             __fmul_rn(high(f[i]), __fsub_rn(y[2 * i + 1], d)));
    }
  }

  TEMPER_DEVICE void run(const QueryItem& item, uint8_t* memory) {
    const int row = item.query + wg * kRows + warp * 16;  // the warp's first, in the sequence
    const int64_t stat = int64_t{item.head} * args.padded + item.tile.pad + row + (lane >> 2);
#pragma unroll
    for (int e = 0; e < 2; e++) lse[e] = args.lse[stat + 8 * e], delta[e] = args.delta[stat + 8 * e];
    Ring r;
    int query = row + (lane >> 2);
    mbar_wait(bars.q_full(), 0);
    mbar_wait(bars.do_full(), 0);
    issue(r, 0);
    finish_scores<true>(query, 0);
    for (int j = 0; j + 1 < item.blocks; j++) {
      const int i = r.i;
      gradients();
      issue_sum(sum, f, smem + SM::kK + i * kBlock, j > 0);
      r.next<2>();
      issue(r, j + 1);
      query -= kRows;
      finish_scores<false>(query, i);
    }
    gradients();
    issue_sum(sum, f, smem + SM::kK + r.i * kBlock, item.blocks > 1);
    wg_wait<0>();
    pin(sum);
    bar_sync(1 + wg, 128);  // all warps have used this warpgroup's queries
    write_rows(sum, args.scale, memory + SM::kQ + wg * kBlock + warp * 2048,
               args.dqkv + (item.tile.row + row) * args.row_width() + item.head * kDim, args.row_width(),
               item.tile.len - row);
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    queries_kernel(const __grid_constant__ CUtensorMap qkv_map, const __grid_constant__ CUtensorMap dout_map,
                   const __grid_constant__ Arguments args) {
  begin_kernel();
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t smem = smem_u32(memory);
  const QueryBars bars{smem + QuerySmem::kBars};
  const int group = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  const int index = blockIdx.x / args.q_heads;
  if (index >= args.list->num_tiles) return;
  QueryItem item{args.tiles[index], 0, static_cast<int>(blockIdx.x) % args.q_heads, 0};
  // block b of keys meets as many blocks of queries as the b-th last of queries meets of keys
  item.query = ((item.tile.len - 1) / kKeys - item.tile.block) * kKeys;
  item.blocks = min(item.query + kKeys - 1, item.tile.len - 1) / kRows + 1;
  if (threadIdx.x == 0) {
    bars.init();
    tma_prefetch_map(&qkv_map);
    tma_prefetch_map(&dout_map);
  }
  __syncthreads();
  if (group == 0) {
    reg_dec<kProducerRegisters>();
    if (warp == 0) load_keys(args, item, {&qkv_map, &dout_map}, bars, smem, lane);
  } else {
    reg_inc<kConsumerRegisters>();
    QueryGroup queries{args, bars, smem, group - 1, warp, lane};
    queries.run(item, memory);
  }
}

}  // namespace wide

}  // namespace
}  // namespace backward

void attention_backward_two_kernels(Ctx& ctx, const AttentionBackwardCall& a) {
  using namespace backward;
  CHECK(a.T <= kMostBackwardRows, "{} packed rows, at most {}", a.T, kMostBackwardRows);
  if (a.T == 0) return;
  const Libraries& libraries = libraries_of(ctx);
  const int most_tiles = a.T / kKeys + std::min(a.S, a.T);
  ArenaScope scope(ctx.scratch);
  auto* tiles = allocate<Tile>(ctx.scratch, most_tiles);
  auto* list = allocate<List>(ctx.scratch, 1);
  const BackwardStatistics rows = attention_backward_two_kernels_scratch(ctx.scratch, a.T, a.S, a.q_heads);
  const auto padded = static_cast<int>(rows.padded);
  auto *lse = rows.lse.as<float>(), *delta = rows.delta.as<float>();
  launch(ctx.lane, list_kernel, 1, kListThreads, 0, tiles, list, a, libraries.multiprocessors());
  launch(ctx.lane, prepare_kernel<wide::kDim, 0>, padded / kPrepareRows, kPrepareThreads,
         static_cast<size_t>(a.q_heads * kSumStride) * sizeof(float), a, padded, lse, delta, nullptr);
  const CUtensorMap qkv = head_map<wide::kDim>(libraries, a.qkv, a.T, a.row_width(),
                                               a.q_heads + 2 * a.kv_heads, wide::kRows),
                    dout = head_map<wide::kDim>(libraries, a.dout, a.T, int64_t{a.q_heads} * wide::kDim,
                                                a.q_heads, wide::kRows);
  const wide::Arguments args{.dqkv = static_cast<bf*>(a.dqkv),
                             .tiles = tiles,
                             .list = list,
                             .lse = lse,
                             .delta = delta,
                             .q_heads = a.q_heads,
                             .kv_heads = a.kv_heads,
                             .group = a.group(),
                             .padded = padded,
                             .c = static_cast<float>(a.scale * 1.4426950408889634),
                             .scale = a.scale};
  allow_shared_memory(wide::keys_kernel, wide::KeySmem::kBytes);
  launch(ctx.lane, wide::keys_kernel, blocks_for(int64_t{2} * most_tiles * a.kv_heads, 1), wide::kThreads,
         wide::KeySmem::kBytes, qkv, dout, args);
  allow_shared_memory(wide::queries_kernel, wide::QuerySmem::kBytes);
  launch(ctx.lane, wide::queries_kernel, blocks_for(int64_t{1} * most_tiles * a.q_heads, 1), wide::kThreads,
         wide::QuerySmem::kBytes, qkv, dout, args);
}

}  // namespace temper::cuda
