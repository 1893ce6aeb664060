// Attention of few query rows per sequence over pages (attention.md). One block per item (a row of a
// sequence, or as many neighbouring ones as have eight query heads for a kv head), kv head and split of 1,024
// keys:
//   scores   S^T = K Q^T by mma.sync, the heads of the group of each row as columns, which go to shared
//   memory softmax  the whole split at once: one warp per column, lane = (128 keys, partial), running maxima
//   by
//            prefix; keys behind a row are none of its own
//   values   O^T = V^T P^T, 16 columns of V a warp (heads of 256: 32), ascending keys
// Warps 0-7 compute, warp 8 copies granules of 64 keys into one ring (keys first, then values). The last
// block of an (item, kv head) merges the splits in ascending order.
//
// Only keys of the rows of this call come from a kernel of this step: the host's copies of the tables lie
// between two steps. So granules of older ones are copied before the previous kernel has finished.
// Where that is the one of the other rows, which begins when all before it is complete, this one runs beside
// it, and waits for it at the end: so whoever waits for this one waits for both.

#include "kernels/cuda/attention.h"
#include "kernels/cuda/device/ptx.cuh"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
namespace cn = canonical;

constexpr int kGranule = 64, kComputeWarps = 8, kThreads = (kComputeWarps + 1) * 32;
constexpr int kMostCopies = cn::kSplit / 16;
constexpr int kRun = 128, kRuns = cn::kSplit / kRun;  // keys whose scores a quad has
constexpr int kScoreRow = 136;                        // floats of a run of scores: no bank conflicts
constexpr int kColumn = kRuns * kScoreRow + 4;        // floats of a column: nor between columns
constexpr int kComputeBarrier = 1;
static_assert(kRuns == 8, "the softmax gives each of 8 runs four lanes");

struct DecodeArguments {
  AttentionCall a;
  int rows;       // of an item, at most
  int splits;     // of the longest sequence: workspace stride
  float* ws_o;    // [items, Hkv, splits, rows, G, D]
  float2* ws_ml;  // [items, Hkv, splits, rows, G]
  int* counters;  // [items, Hkv], zero before and after

  __host__ __device__ int columns() const { return rows * a.group(); }
};

/// Offsets into dynamic shared memory for some columns and a ring of kStages granules. A column's
/// probabilities take the place of its scores.
template <int D, int kStages>
struct Smem {
  static constexpr int kBlocks = cn::kSplit / key_block(D), kBytesPerGranule = kGranule * D * 2,
                       kScores = kStages * kBytesPerGranule;
  __host__ __device__ static int decays(int columns) { return kScores + columns * kColumn * 4; }
  __host__ __device__ static int sums(int columns) {
    return (decays(columns) + columns * kBlocks * 4 + 15) / 16 * 16;
  }
  __host__ __device__ static int copies(int columns) { return sums(columns) + kDecodeGroup * 8 + 16; }
  __host__ __device__ static int bars(int columns) { return copies(columns) + kMostCopies * 4; }
  __host__ __device__ static int bytes(int columns) { return bars(columns) + kStages * 24; }
};

/// Neighbouring rows of the batch that belong to one sequence; none: nothing to do.
struct Item {
  int sequence, first, rows;
};

/// The item with this number. All lanes of a warp ask. Items of one row need less arithmetic, here and below.
template <bool kOneRow>
TEMPER_DEVICE Item item_of(const DecodeArguments& args, int number) {
  const int32_t* cu = args.a.cu;
  const int S = args.a.S, most = args.rows;
  if (args.a.beside) return {number, cu[number], cu[number + 1] - cu[number] == 1 ? 1 : 0};
  if constexpr (kOneRow) {  // the row with this number, mostly that of the sequence with this number
    const bool same = number < S && cu[number] == number && cu[number + 1] > number;
    return {same ? number : sequence_of(cu, S, number), number, 1};
  }
  for (int begin = 0; begin < S; begin += 32) {
    const int lane = threadIdx.x & 31, s = begin + lane;
    const int own = s < S ? (cu[s + 1] - cu[s] + most - 1) / most : 0;
    int sum = own;
    for (int w = 1; w < 32; w *= 2) {
      const int before = __shfl_up_sync(~0u, sum, w);
      if (lane >= w) sum += before;
    }
    const unsigned found = __ballot_sync(~0u, number < sum);
    if (found != 0) {
      const int at = __ffs(static_cast<int>(found)) - 1, sequence = begin + at;
      const int first = cu[sequence] + (number - __shfl_sync(~0u, sum - own, at)) * most;
      return {sequence, first, min(most, cu[sequence + 1] - first)};
    }
    number -= __shfl_sync(~0u, sum, 31);
  }
  return {0, 0, 0};
}

/// What every warp of a block knows.
template <int D, int kStages, bool kOneRow>
struct Decode {
  using SM = Smem<D, kStages>;
  static constexpr int kBlocks = SM::kBlocks, kValueWarps = D < 128 ? D / 16 : kComputeWarps,
                       kParts = D / 16 / kValueWarps;  // of 16 columns each that a warp has of V
  static constexpr int kHalf = kGranule * 128;         // bytes of 64 columns of a granule

  const DecodeArguments& args;
  uint8_t* smem;
  int split, kv_head, number;  // of the item
  Item item;
  int G, columns;
  int before, fresh;  // position of the item's first row, and of the sequence's first row in this call
  int splits, keys, granules, lane, warp;
  uint32_t ring, full, keys_empty, values_empty;

  TEMPER_DEVICE float* scores(int column) const {
    return reinterpret_cast<float*>(smem + SM::kScores) + column * kColumn;
  }
  TEMPER_DEVICE bf* probs(int column) const { return reinterpret_cast<bf*>(scores(column)); }
  TEMPER_DEVICE float& decay(int column, int block) const {
    return reinterpret_cast<float*>(smem + SM::decays(args.columns()))[column * kBlocks + block];
  }
  TEMPER_DEVICE float2& sums(int column) const {
    return reinterpret_cast<float2*>(smem + SM::sums(args.columns()))[column];
  }
  TEMPER_DEVICE int& is_last() const {
    return *reinterpret_cast<int*>(smem + SM::sums(args.columns()) + kDecodeGroup * 8);
  }
  TEMPER_DEVICE int* copy_rows() const { return reinterpret_cast<int*>(smem + SM::copies(args.columns())); }
  /// Row of the item, and head of the group.
  TEMPER_DEVICE int row_of(int column) const { return kOneRow ? 0 : column / G; }
  TEMPER_DEVICE int head_of(int column) const { return kOneRow ? column : column % G; }
  TEMPER_DEVICE int keys_of(int column) const { return before + row_of(column) + 1; }

  // ---- the producer warp: step i < granules is a granule of keys, then one of values

  TEMPER_DEVICE void wait_for_room(int i) const {
    const int stage = i % kStages, previous = i - kStages;
    if (previous < 0) return;
    if (previous < granules) return mbar_wait(keys_empty + stage * 8, previous / kStages & 1);
    const int first = granules + ((stage - granules) % kStages + kStages) % kStages;
    mbar_wait(values_empty + stage * 8, (previous - first) / kStages & 1);
  }

  TEMPER_DEVICE void produce(const CUtensorMap* k_map, const CUtensorMap* v_map) const {
    const AttentionPages& pages = args.a.pages;
    const int rows = rows_per_copy(pages.page_tokens);
    const int pieces = kGranule / rows;
    for (int i = lane; i < granules * pieces; i += 32)
      copy_rows()[i] =
          page_row(pages, args.a.kv_heads, item.sequence, kv_head, split * cn::kSplit + i * rows);
    __syncwarp();
    for (int i = 0; i < 2 * granules; ++i) {
      const int stage = i % kStages, granule = i < granules ? i : i - granules;
      const uint32_t bar = full + stage * 8, to = ring + stage * SM::kBytesPerGranule;
      if (split * cn::kSplit + (granule + 1) * kGranule > fresh && !args.a.beside) wait_for_previous_kernel();
      wait_for_room(i);
      if (lane == 0) mbar_expect(bar, SM::kBytesPerGranule);
      __syncwarp();
      if (lane < pieces * (D / 64)) {
        const int half = lane / pieces, piece = lane % pieces;
        tma_3d(to + half * kHalf + piece * rows * 128, i < granules ? k_map : v_map, bar, 0,
               copy_rows()[granule * pieces + piece], half);
      }
    }
  }

  // ---- scores: two teams of four warps take turns at the granules, 16 keys a warp

  TEMPER_DEVICE void compute_scores() const {
    constexpr int kSteps = D < 128 ? D / 16 : 8;  // of 16 features, whose keys are loaded at once
    const int g = lane >> 2, t = lane & 3;
    uint32_t q[D / 16][2];
    const bf* from = static_cast<const bf*>(args.a.qkv) + (item.first + row_of(g)) * args.a.row_width() +
                     int64_t{kv_head * G + head_of(g)} * D;
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        q[kk][e] =
            g < columns ? __ldcg(reinterpret_cast<const uint32_t*>(from + kk * 16 + 2 * t + 8 * e)) : 0u;
    for (int i = 0; i < granules; i++) {
      const int stage = i % kStages;
      const uint32_t buffer = ring + stage * SM::kBytesPerGranule;
      mbar_wait(full + stage * 8, i / kStages & 1);  // both teams wait: a skipped phase would alias by parity
      if ((i & 1) != warp >> 2) {
        __syncwarp();
        if (lane == 0) mbar_arrive(keys_empty + stage * 8);
        continue;
      }
      float s[4] = {0.f, 0.f, 0.f, 0.f};
      const int r = (warp & 3) * 16 + (lane & 15);
#pragma unroll
      for (int first = 0; first < D / 16; first += kSteps) {
        uint32_t k[kSteps][4];
#pragma unroll
        for (int kk = 0; kk < kSteps; kk++) {
          const int chunk = (first + kk) * 2 + (lane >> 4);
          ldsm4(k[kk], buffer + (chunk >> 3) * kHalf + r * 128 + (((chunk & 7) ^ (r & 7)) << 4));
        }
#pragma unroll
        for (int kk = 0; kk < kSteps; kk++) mma16816(s, k[kk], q[first + kk][0], q[first + kk][1]);
      }
      __syncwarp();
      if (lane == 0) mbar_arrive(keys_empty + stage * 8);
      const int key = i * kGranule + (warp & 3) * 16 + g;
      const int at = key / kRun * kScoreRow + key % kRun;
#pragma unroll
      for (int e = 0; e < 2; e++)
        if (2 * t + e < columns) {
          scores(2 * t + e)[at] = s[e];
          scores(2 * t + e)[at + 8] = s[e + 2];
        }
    }
  }

  // ---- softmax of one column: lane (g, t) holds partial t of the block or the two blocks of run g

  TEMPER_DEVICE void softmax(int column) const {
    constexpr int kPer = kBlocks / kRuns, kPairs = 16 / kPer;  // blocks of a run, pairs of scores of each
    const int g = lane >> 2, t = lane & 3, first = g * kRun + 2 * t,
              own = keys_of(column) - split * cn::kSplit;
    const float* from = scores(column) + g * kScoreRow + 2 * t;
    float x[32], mc[kPer], dec[kPer], base[kPer];
#pragma unroll
    for (int b = 0; b < kPer; b++) {
      float mx = cn::neg_inf();
#pragma unroll
      for (int j = b * kPairs; j < (b + 1) * kPairs; j++) {
        const float2 y = *reinterpret_cast<const float2*>(from + 8 * j);
        const int key = first + 8 * j;
        x[2 * j] = key < own ? y.x : cn::neg_inf();
        x[2 * j + 1] = key + 1 < own ? y.y : cn::neg_inf();
        mx = fmaxf(mx, fmaxf(x[2 * j], x[2 * j + 1]));
      }
      mx = fmaxf(mx, __shfl_xor_sync(~0u, mx, 1));
      mx = fmaxf(mx, __shfl_xor_sync(~0u, mx, 2));
      mc[b] = cn::new_max(b == 0 ? cn::neg_inf() : mc[b - (b > 0)], mx, args.a.c);
    }
    float most = mc[kPer - 1];
    for (int w = 4; w < 32; w *= 2) {
      const float y = __shfl_up_sync(~0u, most, w);
      if (lane >= w) most = fmaxf(most, y);
    }
    float before = __shfl_up_sync(~0u, most, 4);
    if (lane < 4) before = cn::neg_inf();
#pragma unroll
    for (int b = 0; b < kPer; b++) {
      const float now = fmaxf(before, mc[b]);
      base[b] = cn::base(now);
      dec[b] = cn::decay(before, base[b]);
      before = now;
      if (t == 0) decay(column, g * kPer + b) = dec[b];
    }
    __syncwarp();  // all scores are read
    auto* to = reinterpret_cast<uint32_t*>(probs(column) + first);
    float sum[kPer] = {}, l = 0.f;
#pragma unroll
    for (int j = 0; j < 16; j++) {
      const int b = j / kPairs;
      const float p0 = cn::prob(x[2 * j], args.a.c, base[b]), p1 = cn::prob(x[2 * j + 1], args.a.c, base[b]);
      sum[b] = cn::add_p(cn::add_p(sum[b], p0), p1);
      to[4 * j] = cn::pack(p0, p1);
    }
#pragma unroll
    for (int w = 0; w < kBlocks; w++)
      l = cn::add_block(l, __shfl_sync(~0u, dec[w % kPer], w / kPer * 4),
                        __shfl_sync(~0u, sum[w % kPer], w / kPer * 4 + t));
    l = cn::quad_sum(l);
    most = __shfl_sync(~0u, most, 31);
    if (lane == 0) sums(column) = make_float2(most, l);
  }

  // ---- values: O^T = V^T P^T, this warp's columns of V

  struct Fragment {
    uint32_t v[kParts][4][4], p[4][2];
  };

  TEMPER_DEVICE uint32_t value_address(uint32_t granule, int r, int chunk) const {
    return granule + (chunk >> 3) * kHalf + r * 128 + (((chunk & 7) ^ (r & 7)) << 4);
  }

  TEMPER_DEVICE void load_values(int granule, Fragment& f) const {
    const int g = lane >> 2, t = lane & 3, i = granules + granule, stage = i % kStages;
    const uint32_t buffer = ring + stage * SM::kBytesPerGranule;
    mbar_wait(full + stage * 8, i / kStages & 1);
    const int left = keys - granule * kGranule;
    if (left < kGranule) {  // rows past the end: zero this warp's columns (0 * NaN is NaN)
      constexpr int kChunks = 2 * kParts;
      for (int z = lane; z < (kGranule - left) * kChunks; z += 32)
        asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(
                         value_address(buffer, left + z / kChunks, warp * kChunks + z % kChunks)),
                     "r"(0)
                     : "memory");
      __syncwarp();
    }
    const bf* from = probs(g) + granule * kGranule + 2 * t;
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
      f.p[kk][0] = g < columns ? *reinterpret_cast<const uint32_t*>(from + kk * 16) : 0u;
      f.p[kk][1] = g < columns ? *reinterpret_cast<const uint32_t*>(from + kk * 16 + 8) : 0u;
#pragma unroll
      for (int part = 0; part < kParts; part++)
        ldsm4_transposed(f.v[part][kk], value_address(buffer, kk * 16 + (lane >> 4) * 8 + (lane & 7),
                                                      (warp * kParts + part) * 2 + (lane >> 3 & 1)));
    }
  }

  TEMPER_DEVICE void use_values(int granule, const Fragment& f, float (&o)[kParts][4]) const {
    constexpr int kGranules = key_block(D) / kGranule;  // of a block
    const int t = lane & 3;
    if (granule > 0 && granule % kGranules == 0) {  // a new block
      const float d0 = 2 * t < columns ? decay(2 * t, granule / kGranules) : 0.f;
      const float d1 = 2 * t + 1 < columns ? decay(2 * t + 1, granule / kGranules) : 0.f;
#pragma unroll
      for (int part = 0; part < kParts; part++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[part][e] = cn::rescale(o[part][e], e % 2 == 0 ? d0 : d1);
    }
#pragma unroll
    for (int kk = 0; kk < 4; kk++)
#pragma unroll
      for (int part = 0; part < kParts; part++) mma16816(o[part], f.v[part][kk], f.p[kk][0], f.p[kk][1]);
    __syncwarp();
    if (lane == 0) mbar_arrive(values_empty + (granules + granule) % kStages * 8);
  }

  TEMPER_DEVICE bf* out(int column) const {
    return static_cast<bf*>(args.a.out) +
           (int64_t{item.first + row_of(column)} * args.a.q_heads + kv_head * G + head_of(column)) * D;
  }
  /// Index of (split s, column) of this item and kv head in the workspace.
  TEMPER_DEVICE int64_t slot(int s, int column) const {
    return ((int64_t{number} * args.a.kv_heads + kv_head) * args.splits + s) * args.columns() + column;
  }

  TEMPER_DEVICE void compute_values() const {
    if (warp >= kValueWarps) return;
    float o[kParts][4] = {};
    Fragment even, odd;
    load_values(0, even);
    for (int i = 0; i < granules; i += 2) {
      if (i + 1 < granules) load_values(i + 1, odd);
      use_values(i, even, o);
      if (i + 2 < granules) load_values(i + 2, even);
      if (i + 1 < granules) use_values(i + 1, odd, o);
    }
#pragma unroll
    for (int i = 0; i < 4 * kParts; i++) {
      const int e = i % 4, column = 2 * (lane & 3) + (e & 1),
                d = warp * (16 * kParts) + i / 4 * 16 + (lane >> 2) + 8 * (e >> 1);
      if (column >= columns) continue;
      if (splits == 1)
        out(column)[d] = cn::store<bf>(cn::finish(o[i / 4][e], cn::inverse(sums(column).y)));
      else
        args.ws_o[slot(split, column) * D + d] = o[i / 4][e];
    }
  }

  // ---- the last block to arrive merges

  TEMPER_DEVICE void merge_splits() const {
    if (threadIdx.x < columns) args.ws_ml[slot(split, threadIdx.x)] = sums(threadIdx.x);
    __threadfence();
    bar_sync(kComputeBarrier, kComputeWarps * 32);
    if (threadIdx.x == 0) {
      int* counter = &args.counters[number * args.a.kv_heads + kv_head];
      is_last() = atomicAdd(counter, 1) == splits - 1;
      if (is_last()) *counter = 0;
      __threadfence();
    }
    bar_sync(kComputeBarrier, kComputeWarps * 32);
    if (!is_last()) return;
    for (int x = threadIdx.x; x < columns * D; x += kComputeWarps * 32) {
      const int column = x / D, d = x % D, own = (keys_of(column) + cn::kSplit - 1) / cn::kSplit;
      float o = 0.f, l = 0.f, mc = 0.f;
      for (int s = 0; s < own; ++s) {
        const float o_s = __ldcg(&args.ws_o[slot(s, column) * D + d]);
        const float2 ml = __ldcg(&args.ws_ml[slot(s, column)]);
        if (s == 0) {
          o = o_s, l = ml.y, mc = ml.x;
          continue;
        }
        const cn::Merge w = cn::merge(mc, ml.x);
        mc = w.mc;
        l = cn::merged(w, l, ml.y);
        o = cn::merged(w, o, o_s);
      }
      out(column)[d] = cn::store<bf>(cn::finish(o, cn::inverse(l)));
    }
  }
};

template <int D, int kStages, bool kOneRow>
__global__ void __launch_bounds__(kThreads, D == 256 || kStages > 5 ? 1 : 2)
    decode_kernel(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                  const __grid_constant__ DecodeArguments args) {
  launch_dependents();
  using SM = Smem<D, kStages>;
  extern __shared__ __align__(1024) uint8_t smem[];
  const int split = blockIdx.x, number = blockIdx.z, G = args.a.group();
  const Item item = item_of<kOneRow>(args, number);
  const int end = args.a.cu[item.sequence + 1], length = args.a.pages.lengths[item.sequence];
  const int before = length - (end - item.first), all = before + item.rows,
            splits = (all + cn::kSplit - 1) / cn::kSplit;
  if (item.rows == 0 || split >= splits)
    return wait_for_previous_kernel();  // a grid may not end before the one that it depends on
  const int keys = min(cn::kSplit, all - split * cn::kSplit);
  const uint32_t full = smem_u32(smem + SM::bars(args.columns()));
  const Decode<D, kStages, kOneRow> block{args,
                                          smem,
                                          split,
                                          static_cast<int>(blockIdx.y),
                                          number,
                                          item,
                                          G,
                                          item.rows * G,
                                          before,
                                          length - (end - args.a.cu[item.sequence]),
                                          splits,
                                          keys,
                                          (keys + kGranule - 1) / kGranule,
                                          static_cast<int>(threadIdx.x & 31),
                                          static_cast<int>(threadIdx.x >> 5),
                                          smem_u32(smem),
                                          full,
                                          full + kStages * 8,
                                          full + kStages * 16};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) {
      mbar_init(block.full + i * 8, 1);
      mbar_init(block.keys_empty + i * 8, kComputeWarps);
      mbar_init(block.values_empty + i * 8, block.kValueWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (block.warp == kComputeWarps) return block.produce(&k_map, &v_map);
  if (!args.a.beside) wait_for_previous_kernel();
  block.compute_scores();
  bar_sync(kComputeBarrier, kComputeWarps * 32);
  for (int column = block.warp; column < block.columns; column += kComputeWarps) block.softmax(column);
  bar_sync(kComputeBarrier, kComputeWarps * 32);
  block.compute_values();
  if (splits > 1) block.merge_splits();
  if (args.a.beside) wait_for_previous_kernel();
}

template <int D, int kStages, bool kOneRow>
void run(const Libraries& libraries, const DecodeArguments& args, int items) {
  const AttentionCall& a = args.a;
  const int box = rows_per_copy(a.pages.page_tokens), bytes = Smem<D, kStages>::bytes(args.columns());
  allow_shared_memory(decode_kernel<D, kStages, kOneRow>, bytes);
  launch(libraries.lane(), decode_kernel<D, kStages, kOneRow>, dim3(args.splits, a.kv_heads, items), kThreads,
         bytes, page_map(libraries, a.pages.keys, a, box), page_map(libraries, a.pages.values, a, box), args);
}

/// A grid of at most one block per multiprocessor gets a deep ring, else two blocks share one: as deep as
/// they fit. The granules of heads of 256 are as large as two others, and never two blocks share a
/// multiprocessor.
template <int D, bool kOneRow>
void run_fitting(const Libraries& libraries, const DecodeArguments& args, int items) {
  constexpr int kShallow = 5, kDeep = D == 256 ? kShallow : 10, kHalfOfShared = 113 * 1024;
  if (args.splits * args.a.kv_heads * items <= libraries.multiprocessors())
    return run<D, kDeep, kOneRow>(libraries, args, items);
  if constexpr (D < 256 && !kOneRow)
    if (Smem<D, kShallow>::bytes(args.columns()) > kHalfOfShared)
      return run<D, kShallow - 1, kOneRow>(libraries, args, items);
  run<D, kShallow, kOneRow>(libraries, args, items);
}

}  // namespace

void attention_decode(Ctx& ctx, const AttentionCall& a) {
  if (a.T == 0) return;
  static_assert(cn::kSplit == kSplitKeys);
  const int64_t splits = num_splits(a.pages.per_sequence, a.pages.page_tokens);
  const DecodeItems items = decode_items(a.T, a.S, a.group());
  CHECK(items.all || a.beside, "{} rows of {} sequences without prefill", a.T, a.S);
  CHECK(items.count * a.kv_heads <= Libraries::kCounters, "{} items of {} kv heads in one step", items.count,
        a.kv_heads);
  const DecodeSplits memory = attention_decode_scratch(ctx.scratch, items, a.q_heads, a.head_dim, splits);
  const DecodeArguments args{a,
                             static_cast<int>(items.rows),
                             static_cast<int>(splits),
                             memory.outputs,
                             reinterpret_cast<float2*>(memory.statistics),
                             libraries_of(ctx).counters()};
  const auto run_items = [&]<bool kOneRow>() {
    const auto count = static_cast<int>(items.count);
    if (a.head_dim == 256)
      run_fitting<256, kOneRow>(libraries_of(ctx), args, count);
    else if (a.head_dim == 128)
      run_fitting<128, kOneRow>(libraries_of(ctx), args, count);
    else
      run_fitting<64, kOneRow>(libraries_of(ctx), args, count);
  };
  if (items.rows == 1)
    run_items.operator()<true>();
  else
    run_items.operator()<false>();
}

}  // namespace temper::cuda
