// Attention of one query row per sequence over pages (attention.md). One block per sequence, kv head and
// split of 1,024 keys:
//   scores   S^T = K Q^T by mma.sync, the query heads of the group as columns; all scores go to shared memory
//   softmax  the whole split at once: one warp per head, lane = (128 keys, partial), running maxima by prefix
//   values   O^T = V^T P^T, 16 columns of V a warp (heads of 256: 32), ascending keys
// Warps 0-7 compute, warp 8 copies granules of 64 keys into one ring (keys first, then values). The last
// block of a (sequence, kv head) merges the splits in ascending order.
//
// Only the newest of all keys, in the last granule, comes from a kernel of this step: the host's copies of
// the tables lie between two steps. So the other granules are copied before the previous kernel has finished.
// Where that is the one of the other rows, which begins when all before it is complete, this one runs beside
// it, and its last block waits for it at the end: so whoever waits for this one waits for both, and the other
// blocks make room for those behind them.

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
constexpr int kProbRow = cn::kSplit + 8;              // bf16 of a head's probabilities
constexpr int kComputeBarrier = 1;
static_assert(kRuns == 8, "the softmax gives each of 8 runs four lanes");

struct DecodeArguments {
  AttentionCall a;
  int splits;     // of the longest sequence: workspace stride
  float* ws_o;    // [S, Hkv, splits, G, D]
  float2* ws_ml;  // [S, Hkv, splits, G]
  int* counters;  // [S, Hkv], zero before and after
};

/// Offsets into dynamic shared memory for groups of G heads and a ring of kStages granules.
template <int D, int kStages>
struct Smem {
  static constexpr int kBlocks = cn::kSplit / key_block(D), kBytesPerGranule = kGranule * D * 2,
                       kScores = kStages * kBytesPerGranule;
  __host__ __device__ static int probs(int G) { return kScores + G * kRuns * kScoreRow * 4; }
  __host__ __device__ static int decays(int G) { return probs(G) + G * kProbRow * 2; }
  __host__ __device__ static int sums(int G) { return (decays(G) + G * kBlocks * 4 + 15) / 16 * 16; }
  __host__ __device__ static int rows(int G) { return sums(G) + kDecodeGroup * 8 + 16; }
  __host__ __device__ static int bars(int G) { return rows(G) + kMostCopies * 4; }
  __host__ __device__ static int bytes(int G) { return bars(G) + kStages * 24; }
};

/// What every warp of a block knows.
template <int D, int kStages>
struct Decode {
  using SM = Smem<D, kStages>;
  static constexpr int kBlocks = SM::kBlocks, kValueWarps = D < 128 ? D / 16 : kComputeWarps,
                       kParts = D / 16 / kValueWarps;  // of 16 columns each that a warp has of V
  static constexpr int kHalf = kGranule * 128;         // bytes of 64 columns of a granule

  const DecodeArguments& args;
  uint8_t* smem;
  int split, kv_head, sequence, G, splits, keys, granules, lane, warp;
  uint32_t ring, full, keys_empty, values_empty;

  TEMPER_DEVICE float* scores(int head) const {
    return reinterpret_cast<float*>(smem + SM::kScores) + head * kRuns * kScoreRow;
  }
  TEMPER_DEVICE bf* probs(int head) const {
    return reinterpret_cast<bf*>(smem + SM::probs(G)) + head * kProbRow;
  }
  TEMPER_DEVICE float& decay(int head, int block) const {
    return reinterpret_cast<float*>(smem + SM::decays(G))[head * kBlocks + block];
  }
  TEMPER_DEVICE float2& sums(int head) const { return reinterpret_cast<float2*>(smem + SM::sums(G))[head]; }
  TEMPER_DEVICE int& is_last() const {
    return *reinterpret_cast<int*>(smem + SM::sums(G) + kDecodeGroup * 8);
  }
  TEMPER_DEVICE int* copy_rows() const { return reinterpret_cast<int*>(smem + SM::rows(G)); }

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
      copy_rows()[i] = page_row(pages, args.a.kv_heads, sequence, kv_head, split * cn::kSplit + i * rows);
    __syncwarp();
    for (int i = 0; i < 2 * granules; ++i) {
      const int stage = i % kStages, granule = i < granules ? i : i - granules;
      const uint32_t bar = full + stage * 8, to = ring + stage * SM::kBytesPerGranule;
      if (granule == granules - 1 && split == splits - 1 && !args.a.beside) wait_for_previous_kernel();
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
    const bf* from = static_cast<const bf*>(args.a.qkv) + args.a.cu[sequence] * args.a.row_width() +
                     int64_t{kv_head * G + g} * D;
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        q[kk][e] = g < G ? __ldcg(reinterpret_cast<const uint32_t*>(from + kk * 16 + 2 * t + 8 * e)) : 0u;
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
        if (2 * t + e < G) {
          scores(2 * t + e)[at] = s[e];
          scores(2 * t + e)[at + 8] = s[e + 2];
        }
    }
  }

  // ---- softmax of one head: lane (g, t) holds partial t of the block or the two blocks of run g

  TEMPER_DEVICE void softmax(int head) const {
    constexpr int kPer = kBlocks / kRuns, kPairs = 16 / kPer;  // blocks of a run, pairs of scores of each
    const int g = lane >> 2, t = lane & 3, first = g * kRun + 2 * t;
    const float* from = scores(head) + g * kScoreRow + 2 * t;
    float x[32], mc[kPer], dec[kPer], base[kPer];
#pragma unroll
    for (int b = 0; b < kPer; b++) {
      float mx = cn::neg_inf();
#pragma unroll
      for (int j = b * kPairs; j < (b + 1) * kPairs; j++) {
        const float2 y = *reinterpret_cast<const float2*>(from + 8 * j);
        const int key = first + 8 * j;
        x[2 * j] = key < keys ? y.x : cn::neg_inf();
        x[2 * j + 1] = key + 1 < keys ? y.y : cn::neg_inf();
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
      if (t == 0) decay(head, g * kPer + b) = dec[b];
    }
    auto* to = reinterpret_cast<uint32_t*>(probs(head) + first);
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
    if (lane == 0) sums(head) = make_float2(most, l);
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
      f.p[kk][0] = g < G ? *reinterpret_cast<const uint32_t*>(from + kk * 16) : 0u;
      f.p[kk][1] = g < G ? *reinterpret_cast<const uint32_t*>(from + kk * 16 + 8) : 0u;
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
      const float d0 = 2 * t < G ? decay(2 * t, granule / kGranules) : 0.f;
      const float d1 = 2 * t + 1 < G ? decay(2 * t + 1, granule / kGranules) : 0.f;
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

  TEMPER_DEVICE bf* out(int head) const {
    return static_cast<bf*>(args.a.out) +
           (int64_t{args.a.cu[sequence]} * args.a.q_heads + kv_head * G + head) * D;
  }
  /// Index of (split s, head) of this sequence and kv head in the workspace.
  TEMPER_DEVICE int64_t slot(int s, int head) const {
    return ((int64_t{sequence} * args.a.kv_heads + kv_head) * args.splits + s) * G + head;
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
      const int e = i % 4, head = 2 * (lane & 3) + (e & 1),
                d = warp * (16 * kParts) + i / 4 * 16 + (lane >> 2) + 8 * (e >> 1);
      if (head >= G) continue;
      if (splits == 1)
        out(head)[d] = cn::store<bf>(cn::finish(o[i / 4][e], cn::inverse(sums(head).y)));
      else
        args.ws_o[slot(split, head) * D + d] = o[i / 4][e];
    }
  }

  // ---- the last block to arrive merges

  TEMPER_DEVICE void merge_splits() const {
    if (threadIdx.x < G) args.ws_ml[slot(split, threadIdx.x)] = sums(threadIdx.x);
    __threadfence();
    bar_sync(kComputeBarrier, kComputeWarps * 32);
    if (threadIdx.x == 0) {
      int* counter = &args.counters[sequence * args.a.kv_heads + kv_head];
      is_last() = atomicAdd(counter, 1) == splits - 1;
      if (is_last()) *counter = 0;
      __threadfence();
    }
    bar_sync(kComputeBarrier, kComputeWarps * 32);
    if (!is_last()) return;
    for (int x = threadIdx.x; x < G * D; x += kComputeWarps * 32) {
      const int head = x / D, d = x % D;
      float o = 0.f, l = 0.f, mc = 0.f;
      for (int s = 0; s < splits; ++s) {
        const float o_s = __ldcg(&args.ws_o[slot(s, head) * D + d]);
        const float2 ml = __ldcg(&args.ws_ml[slot(s, head)]);
        if (s == 0) {
          o = o_s, l = ml.y, mc = ml.x;
          continue;
        }
        const cn::Merge w = cn::merge(mc, ml.x);
        mc = w.mc;
        l = cn::merged(w, l, ml.y);
        o = cn::merged(w, o, o_s);
      }
      out(head)[d] = cn::store<bf>(cn::finish(o, cn::inverse(l)));
    }
  }
};

template <int D, int kStages>
__global__ void __launch_bounds__(kThreads, D == 256 || kStages > 5 ? 1 : 2)
    decode_kernel(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                  const __grid_constant__ DecodeArguments args) {
  launch_dependents();
  using SM = Smem<D, kStages>;
  extern __shared__ __align__(1024) uint8_t smem[];
  const int split = blockIdx.x, sequence = blockIdx.z, G = args.a.q_heads / args.a.kv_heads;
  const int length = args.a.pages.lengths[sequence], splits = (length + cn::kSplit - 1) / cn::kSplit;
  // A grid may not end before the one that it depends on.
  const bool is_last =
      split + 1 == static_cast<int>(gridDim.x) && blockIdx.y + 1 == gridDim.y && blockIdx.z + 1 == gridDim.z;
  if (args.a.cu[sequence + 1] - args.a.cu[sequence] != 1 || split >= splits) {
    if (is_last) wait_for_previous_kernel();
    return;
  }
  const int keys = min(cn::kSplit, length - split * cn::kSplit);
  const uint32_t full = smem_u32(smem + SM::bars(G));
  const Decode<D, kStages> block{args,
                                 smem,
                                 split,
                                 static_cast<int>(blockIdx.y),
                                 sequence,
                                 G,
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
  for (int head = block.warp; head < G; head += kComputeWarps) block.softmax(head);
  bar_sync(kComputeBarrier, kComputeWarps * 32);
  block.compute_values();
  if (splits > 1) block.merge_splits();
  if (args.a.beside && is_last) wait_for_previous_kernel();
}

template <int D, int kStages>
void run(const Libraries& libraries, const DecodeArguments& args) {
  const AttentionCall& a = args.a;
  const int box = rows_per_copy(a.pages.page_tokens), bytes = Smem<D, kStages>::bytes(a.group());
  allow_shared_memory(decode_kernel<D, kStages>, bytes);
  launch(libraries.lane(), decode_kernel<D, kStages>, dim3(args.splits, a.kv_heads, a.S), kThreads, bytes,
         page_map(libraries, a.pages.keys, a, box), page_map(libraries, a.pages.values, a, box), args);
}

/// A grid of at most one block per multiprocessor gets a deep ring, else two blocks share one. The granules
/// of heads of 256 are as large as two others, and never two blocks share a multiprocessor.
template <int D>
void run_fitting(const Libraries& libraries, const DecodeArguments& args) {
  constexpr int kShallow = 5, kDeep = D == 256 ? kShallow : 10;
  if (args.splits * args.a.kv_heads * args.a.S <= libraries.multiprocessors())
    run<D, kDeep>(libraries, args);
  else
    run<D, kShallow>(libraries, args);
}

}  // namespace

void attention_decode(Ctx& ctx, const AttentionCall& a) {
  if (a.S == 0) return;
  static_assert(cn::kSplit == kSplitKeys);
  const int64_t splits = num_splits(a.pages.per_sequence, a.pages.page_tokens);
  CHECK(int64_t{a.S} * a.kv_heads <= Libraries::kCounters, "{} sequences of {} kv heads in one step", a.S,
        a.kv_heads);
  const DecodeSplits memory = attention_decode_scratch(ctx.scratch, a.S, a.q_heads, a.head_dim, splits);
  const DecodeArguments args{a, static_cast<int>(splits), memory.outputs,
                             reinterpret_cast<float2*>(memory.statistics), libraries_of(ctx).counters()};
  if (a.head_dim == 256)
    run_fitting<256>(libraries_of(ctx), args);
  else if (a.head_dim == 128)
    run_fitting<128>(libraries_of(ctx), args);
  else
    run_fitting<64>(libraries_of(ctx), args);
}

}  // namespace temper::cuda
