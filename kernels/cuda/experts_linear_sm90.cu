// Grouped products on tensor cores (sm_90a). Blocks of threads stay and take tiles in turn, 64 rows of
// outputs for each consuming warpgroup: one warp fills a ring of shared memory by tensor copies (TMA,
// 128-byte swizzle), the warpgroups multiply by wgmma, some steps of the sum a stage. One accumulator per
// output over ascending steps from the start of the expert. Forward and input gradient: rows do not know each
// other, so a tile loads past the end of its expert and stores up to it; outputs of many rows wait in shared
// memory and go out during the next tile, a few rows a stage, as loads queue behind what is sent at once.
// Weight gradient: the sum is over rows, so those past the end become zeros in shared memory, and steps of 16
// without a row are left out.

#include <algorithm>

#include "kernels/cuda/device/wgmma_wide.cuh"
#include "kernels/cuda/experts_linear.h"
#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
namespace cn = canonical;

constexpr int kMostExperts = 1024;
constexpr int kBand =
    16;  // row tiles that go through all columns together: what they read stays in the L2 cache

struct Arguments {
  void* y;
  const int32_t* offsets;
  int experts;
  int M, N, K;  // M: outputs of a weight gradient; K: steps of the sum of the others
  int column_tiles;
  int row_tiles;  // of an expert's weight gradient
  bool add;
};

/// A kind of product with its tiles: warpgroups that multiply, columns, stages of the ring and steps of each;
/// do outputs wait in shared memory?
template <ProductKind kKindOf, int kConsumersOf, int kColumnsOf, int kStagesOf, int kDepthOf, bool kWaitsOf>
struct Form {
  static constexpr ProductKind kKind = kKindOf;
  static constexpr bool kSumsRows = kKind == ProductKind::weight_gradient;
  static constexpr bool kFewRows = kConsumersOf == 1;
  static constexpr bool kWaits = kWaitsOf;
  static constexpr int kConsumers = kConsumersOf, kColumns = kColumnsOf, kStages = kStagesOf;
  static constexpr int kRows = 64 * kConsumers, kThreads = 128 * (kConsumers + 1);
  static constexpr int kDepth = kDepthOf, kSteps = kDepth / 16;
  static constexpr int kChunk = kDepth * 128;  // bytes of a stage's rows of 64 elements
  static constexpr int kLeft = kConsumers * kChunk, kStage = kLeft + kColumns / 64 * kChunk;
  static constexpr int kPitch = kColumns * 2 + 16;  // of outputs that wait: eight rows hit all banks
  static constexpr int kShared = kStages * kStage + (kWaits ? kRows * kPitch : 0) + 1024;
};

struct Tile {
  int expert;
  int row, rows;  // first row of x or dy, rows of the expert from there on
  int m, n;       // first output; m is one of a weight gradient
};

/// The experts' rows, and the tiles before each of them, in shared memory.
struct Experts {
  int offsets[kMostExperts + 1], tiles[kMostExperts + 1];

  /// By all threads.
  TEMPER_DEVICE void load(const Arguments& p, int tile_rows) {
    for (int e = threadIdx.x; e <= p.experts; e += blockDim.x) offsets[e] = p.offsets[e];
    __syncthreads();
    if (threadIdx.x >= 32) return;
    const int lane = threadIdx.x;
    int before = 0;
    for (int first = 0; first < p.experts; first += 32) {
      const int e = first + lane;
      const int own = e < p.experts ? (offsets[e + 1] - offsets[e] + tile_rows - 1) / tile_rows : 0;
      int sum = own;
#pragma unroll
      for (int w = 1; w < 32; w *= 2) {
        const int other = __shfl_up_sync(~0u, sum, w);
        if (lane >= w) sum += other;
      }
      if (e < p.experts) tiles[e] = before + sum - own;
      before += __shfl_sync(~0u, sum, 31);
    }
    if (lane == 0) tiles[p.experts] = before;
  }
  TEMPER_DEVICE int expert_of(int tile, int experts) const {
    int low = 0, high = experts;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (tiles[middle] <= tile)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
};

/// Tiles in the order in which blocks of threads take them.
template <class F>
struct Order {
  const Arguments& p;
  const Experts& experts;

  TEMPER_DEVICE int count() const {
    return F::kSumsRows ? p.experts * p.row_tiles * p.column_tiles
                        : experts.tiles[p.experts] * p.column_tiles;
  }
  TEMPER_DEVICE Tile tile(int t) const {
    if constexpr (F::kSumsRows) {
      const int each = p.row_tiles * p.column_tiles, e = t / each, at = t % each;
      const int row = experts.offsets[e];
      return {e, row, experts.offsets[e + 1] - row, at % p.row_tiles * F::kRows,
              at / p.row_tiles * F::kColumns};
    } else {
      const int e = experts.expert_of(t / p.column_tiles, p.experts);
      const int row_tiles = experts.tiles[e + 1] - experts.tiles[e];
      int at = t - experts.tiles[e] * p.column_tiles;
      const int band = at / (kBand * p.column_tiles), rows = min(kBand, row_tiles - band * kBand);
      at -= band * kBand * p.column_tiles;
      const int row = (band * kBand + at % rows) * F::kRows + experts.offsets[e];
      return {e, row, experts.offsets[e + 1] - row, 0, at / rows * F::kColumns};
    }
  }
  /// Stages of a tile; the last one of a weight gradient may have fewer steps.
  TEMPER_DEVICE int stages(const Tile& tile) const {
    return F::kSumsRows ? (tile.rows + F::kDepth - 1) / F::kDepth : p.K / F::kDepth;
  }
};

/// Position in the ring; `phase` flips at every round.
template <int kStages>
struct Ring {
  int stage = 0, phase;
  TEMPER_DEVICE void next() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
};

/// Barriers of the stages, and of the stage whose rows past the end of the expert are cleared.
template <int kStages>
struct Bars {
  uint64_t full[kStages], empty[kStages], tail;
};

struct Maps {
  CUtensorMap left, few, right;  // `few`: 8 rows of left
};

template <class F>
struct Producer {
  const Arguments& p;
  const Maps& maps;
  Order<F> order;
  uint32_t ring, full, empty, tail;
  int lane;
  uint32_t tails = 0;

  TEMPER_DEVICE void load(const Tile& tile, int k, uint32_t to, uint32_t bar) const {
    const uint32_t right = to + F::kLeft;
    constexpr auto forward = ProductKind::forward;
    const int few = F::kFewRows && tile.rows <= 32 ? (tile.rows + 7) / 8 : 0;
    mbar_expect(bar, few > 0 ? few * 1024 + F::kStage - F::kLeft : F::kStage);
    if constexpr (F::kKind == forward)
      tma_3d(right, &maps.right, bar, 0, tile.expert * p.N + tile.n, k);
    else if constexpr (F::kSumsRows)
      tma_3d(right, &maps.right, bar, 0, tile.row + k * F::kDepth, tile.n / 64);
    else
      tma_3d(right, &maps.right, bar, 0, tile.expert * p.K + k * F::kDepth, tile.n / 64);
    if constexpr (F::kSumsRows)
      tma_3d(to, &maps.left, bar, 0, tile.row + k * F::kDepth, tile.m / 64);
    else if (few == 0)
      tma_3d(to, &maps.left, bar, 0, tile.row, k);
    for (int i = 0; i < few; ++i) tma_3d(to + i * 1024, &maps.few, bar, 0, tile.row + 8 * i, k);
  }
  /// Zeroes the rows from `from` on of every chunk of a stage: they may hold NaN.
  TEMPER_DEVICE void clear(uint32_t to, int from) const {
    for (int chunk = 0; chunk < F::kStage / F::kChunk; ++chunk)
      for (int r = from + (lane >> 3); r < F::kDepth; r += 4)
        asm volatile(
            "st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(to + chunk * F::kChunk + r * 128 + (lane & 7) * 16),
            "r"(0)
            : "memory");
  }
  TEMPER_DEVICE void run() {
    Ring<F::kStages> at{0, 1};  // the first round passes at once
    const int count = order.count();
    for (int t = blockIdx.x; t < count; t += gridDim.x) {
      const Tile tile = order.tile(t);
      const int stages = order.stages(tile);
      for (int k = 0; k < stages; ++k, at.next()) {
        const int rows = tile.rows - k * F::kDepth;
        const bool cut = F::kSumsRows && rows < F::kDepth;
        const uint32_t to = ring + at.stage * F::kStage, bar = full + at.stage * 8;
        if (lane == 0) {
          mbar_wait(empty + at.stage * 8, at.phase);
          load(tile, k, to, cut ? tail : bar);
        }
        if (!cut) continue;
        mbar_wait(tail, tails++ & 1);
        clear(to, rows);
        fence_async();
        __syncwarp();
        if (lane == 0) mbar_arrive(bar);
      }
    }
  }
};

template <class F>
struct Consumer {
  const Arguments& p;
  Order<F> order;
  uint32_t ring, full, empty;
  int group, warp, lane;
  Ring<F::kStages> at{0, 0};
  char* to = nullptr;  // where this lane's row of outputs that wait goes
  int bytes = 0;       // of it that were not sent

  TEMPER_DEVICE void wait() const {
    if (lane == 0) mbar_wait(full + at.stage * 8, at.phase);
    __syncwarp();
  }
  TEMPER_DEVICE void release(int stage) const {
    if (lane == 0) mbar_arrive(empty + stage * 8);
  }
  TEMPER_DEVICE uint64_t left() const {
    return smem_descriptor(ring + at.stage * F::kStage + group * F::kChunk, F::kSumsRows ? F::kChunk : 16,
                           1024);
  }
  TEMPER_DEVICE uint64_t right() const {
    return smem_descriptor(ring + at.stage * F::kStage + F::kLeft,
                           F::kKind == ProductKind::forward ? 16 : F::kChunk, 1024);
  }
  /// Step kk of 16 in a stage: 32 bytes along a row, or 16 rows.
  TEMPER_DEVICE static void step(float (&sum)[F::kColumns / 2], uint64_t a, uint64_t b, int kk, int keep) {
    if constexpr (F::kKind == ProductKind::forward)
      wgmma_ss(sum, a + 2 * kk, b + 2 * kk, keep);
    else if constexpr (F::kSumsRows)
      wgmma_tn(sum, a + 128 * kk, b + 128 * kk, keep);
    else
      wgmma_ss_turned(sum, a + 2 * kk, b + 128 * kk, keep);
  }

  /// Stages with all of their steps. The stage before is free once the first step of the next is all that is
  /// under way.
  TEMPER_DEVICE void multiply(float (&sum)[F::kColumns / 2], int stages) {
    int previous = -1;
    for (int k = 0; k < stages; ++k, at.next()) {
      wait();
      const uint64_t a = left(), b = right();
      wg_fence();
      step(sum, a, b, 0, k > 0);
      wg_commit();
      wg_wait<1>();
      if (previous >= 0) release(previous);
#pragma unroll
      for (int kk = 1; kk < F::kSteps; ++kk) step(sum, a, b, kk, 1);
      wg_commit();
      if constexpr (F::kWaits) send(2 * k, 2 * k + 2);
      previous = at.stage;
    }
    wg_wait<0>();
    pin(sum);
    release(previous);
  }
  /// The same where the last stage may have fewer: one at a time, as the compiler takes branches between them
  /// for a reason to wait for each.
  TEMPER_DEVICE void multiply_steps(float (&sum)[F::kColumns / 2], int steps) {
    int previous = -1;
    for (int k = 0; k < steps; ++k) {
      const int kk = k % F::kSteps;
      if (kk == 0) wait();
      const uint64_t a = left(), b = right();
      wg_fence();
      step(sum, a, b, kk, k > 0);
      wg_commit();
      wg_wait<1>();
      if (kk == 0 && previous >= 0) release(previous);
      previous = at.stage;
      if (kk == F::kSteps - 1) at.next();
    }
    wg_wait<0>();
    pin(sum);
    release(previous);
    if (steps % F::kSteps != 0) at.next();
  }
  TEMPER_DEVICE void skip(int stages) {
    for (int k = 0; k < stages; ++k, at.next()) {
      wait();
      release(at.stage);
    }
  }

  /// Words 0..3 of the four lanes of a quad, transposed.
  TEMPER_DEVICE void transpose(uint32_t (&w)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      const uint32_t got = __shfl_xor_sync(~0u, lane & 1 ? w[k] : w[k + 1], 1);
      w[k] = lane & 1 ? got : w[k], w[k + 1] = lane & 1 ? w[k + 1] : got;
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const uint32_t got = __shfl_xor_sync(~0u, lane & 2 ? w[k] : w[k + 2], 2);
      w[k] = lane & 2 ? got : w[k], w[k + 2] = lane & 2 ? w[k + 2] : got;
    }
  }
  /// bf16, 16 bytes a lane. Rows past the end of the expert are others'.
  TEMPER_DEVICE void store_rows(const float (&sum)[F::kColumns / 2], const Tile& tile) const {
    const int row = group * 64 + warp * 16 + (lane >> 2);
    bf* const to = static_cast<bf*>(p.y) + int64_t{tile.row + row} * p.N;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < F::kColumns / 8; j += 4) {
        uint32_t w[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          w[k] = cn::pack(sum[4 * (j + k) + 2 * half], sum[4 * (j + k) + 2 * half + 1]);
        transpose(w);
        const int n = tile.n + (j + (lane & 3)) * 8;
        if (row + 8 * half < tile.rows && n < p.N)
          *reinterpret_cast<uint4*>(to + 8 * half * int64_t{p.N} + n) = make_uint4(w[0], w[1], w[2], w[3]);
      }
  }
  /// This warp's part of the outputs that wait: 16 rows.
  TEMPER_DEVICE uint32_t waiting() const {
    return ring + F::kStages * F::kStage + (group * 4 + warp) * 16 * F::kPitch;
  }
  /// Sends those of the rows that wait which are in [begin, end).
  TEMPER_DEVICE void send(int begin, int end) {
    if (bytes == 0 || lane < begin || lane >= end) return;
    bulk_store(to, waiting() + lane * F::kPitch, bytes);
    bulk_commit();
    bytes = 0;
  }
  /// bf16, into shared memory, when what waited there has left it.
  TEMPER_DEVICE void keep_rows(const float (&sum)[F::kColumns / 2], const Tile& tile) {
    send(0, 16);
    bulk_wait_read<0>();
    __syncwarp();
    const uint32_t own = waiting() + (lane & 15) * F::kPitch + (lane >> 4) * 16;
#pragma unroll
    for (int j = 0; j < F::kColumns / 8; j += 2)
      stsm4(own + j * 16, cn::pack(sum[4 * j], sum[4 * j + 1]), cn::pack(sum[4 * j + 2], sum[4 * j + 3]),
            cn::pack(sum[4 * j + 4], sum[4 * j + 5]), cn::pack(sum[4 * j + 6], sum[4 * j + 7]));
    fence_async();
    __syncwarp();
    const int row = group * 64 + warp * 16 + lane;
    to = reinterpret_cast<char*>(static_cast<bf*>(p.y) + int64_t{tile.row + row} * p.N + tile.n);
    bytes = lane < 16 && row < tile.rows ? min(F::kColumns, p.N - tile.n) * 2 : 0;
  }
  /// Four neighbouring outputs, from two groups of 8: even lanes of a quad have those of the first.
  TEMPER_DEVICE float4 four(const float* first, const float* second) const {
    const bool odd = lane & 1;
    const float x = __shfl_xor_sync(~0u, odd ? first[0] : second[0], 1),
                y = __shfl_xor_sync(~0u, odd ? first[1] : second[1], 1);
    return odd ? make_float4(x, y, second[0], second[1]) : make_float4(first[0], first[1], x, y);
  }
  /// fp32, 16 bytes a lane.
  TEMPER_DEVICE void store_block(const float (&sum)[F::kColumns / 2], const Tile& tile) const {
    const int m = tile.m + group * 64 + warp * 16 + (lane >> 2);
    float* const to = static_cast<float*>(p.y) + (int64_t{tile.expert} * p.M + m) * p.N;
    constexpr int kAhead = 4;  // pairs of groups whose old values are read at once
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < F::kColumns / 8; j += 2 * kAhead) {
        float4 held[kAhead];
        const auto at = [&](int k) {
          const int n = tile.n + (j + 2 * k + (lane & 1)) * 8 + (lane & 2) * 2;
          return n < p.N ? reinterpret_cast<float4*>(to + 8 * half * int64_t{p.N} + n) : nullptr;
        };
#pragma unroll
        for (int k = 0; k < kAhead; ++k)
          if (const float4* from = at(k); p.add && from != nullptr) held[k] = __ldcs(from);
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          const float* const first = sum + 4 * (j + 2 * k) + 2 * half;
          float4 v = four(first, first + 4);
          if (p.add)
            v = make_float4(__fadd_rn(v.x, held[k].x), __fadd_rn(v.y, held[k].y), __fadd_rn(v.z, held[k].z),
                            __fadd_rn(v.w, held[k].w));
          if (float4* out = at(k); out != nullptr) __stcs(out, v);
        }
      }
  }

  /// What an expert without rows writes first.
  TEMPER_DEVICE void store_zeros(const Tile& tile) const {
    float* const to = static_cast<float*>(p.y) + (int64_t{tile.expert} * p.M + tile.m + group * 64) * p.N;
    for (int i = threadIdx.x & 127; i < 64 * F::kColumns / 4; i += 128)
      if (const int n = tile.n + i % (F::kColumns / 4) * 4; n < p.N)
        *reinterpret_cast<float4*>(to + i / (F::kColumns / 4) * int64_t{p.N} + n) = make_float4(0, 0, 0, 0);
  }

  TEMPER_DEVICE void work(float (&sum)[F::kColumns / 2], const Tile& tile) {
    const int stages = order.stages(tile), begin = group * 64;
    if (F::kSumsRows ? tile.m + begin >= p.M : begin >= tile.rows) return skip(stages);
    if constexpr (F::kSumsRows) {
      if (tile.rows == 0) {
        if (!p.add) store_zeros(tile);
        return;
      }
      multiply_steps(sum, (tile.rows + 15) / 16);
      store_block(sum, tile);
    } else {
      multiply(sum, stages);
      if constexpr (F::kWaits)
        keep_rows(sum, tile);
      else
        store_rows(sum, tile);
    }
  }
  /// The next tile is known before the work on one begins: nothing waits for it.
  TEMPER_DEVICE void run() {
    const int count = order.count(), first = blockIdx.x, step = gridDim.x;
    if (first >= count) return;
    float sum[F::kColumns / 2];
    Tile next = order.tile(first);
    for (int t = first; t < count; t += step) {
      const Tile tile = next;
      if (t + step < count) next = order.tile(t + step);
      work(sum, tile);
    }
    if constexpr (F::kWaits) {
      send(0, 16);
      bulk_wait<0>();
    }
  }
};

// 40 + 2 * 232 = 504 of 512: the registers of a multiprocessor
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;

template <class F>
__global__ void __launch_bounds__(F::kThreads, 1)
    expert_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Arguments p) {
  begin_kernel();
  extern __shared__ uint8_t raw[];
  __shared__ __align__(8) Bars<F::kStages> bars;
  __shared__ Experts experts;
  const int group = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  const uint32_t ring = (smem_u32(raw) + 1023) & ~1023u, full = smem_u32(bars.full),
                 empty = smem_u32(bars.empty), tail = smem_u32(&bars.tail);
  if (threadIdx.x == 0) {
    for (int i = 0; i < F::kStages; ++i) {
      mbar_init(full + 8 * i, 1);
      mbar_init(empty + 8 * i, 4 * F::kConsumers);
    }
    mbar_init(tail, 1);
    fence_barrier_init();
  }
  experts.load(p, F::kRows);
  __syncthreads();
  const Order<F> order{p, experts};
  if (group == F::kConsumers) {
    if constexpr (!F::kFewRows) reg_dec<kProducerRegisters>();
    if (warp == 0) Producer<F>{p, maps, order, ring, full, empty, tail, lane}.run();
  } else {
    if constexpr (!F::kFewRows) reg_inc<kConsumerRegisters>();
    Consumer<F>{p, order, ring, full, empty, group, warp, lane}.run();
  }
}

// ---- launch

/// Rows of `width` elements in boxes of some rows and of chunks of 64 elements.
CUtensorMap chunk_map(const Libraries& libraries, const void* data, int64_t rows, int64_t width, int box_rows,
                      int box_chunks) {
  const auto columns = static_cast<uint64_t>(width);
  return libraries.tensor_map(data, {64, static_cast<uint64_t>(rows), columns / 64}, {columns * 2, 128},
                              {64, static_cast<uint32_t>(box_rows), static_cast<uint32_t>(box_chunks)});
}

template <class F>
Maps maps_of(const Libraries& libraries, const ExpertProduct& e) {
  const Product& p = e.all;
  if constexpr (F::kSumsRows) {
    const CUtensorMap dy = chunk_map(libraries, p.x, p.K, p.M, F::kDepth, F::kConsumers);
    return {dy, dy, chunk_map(libraries, p.w, p.K, p.N, F::kDepth, F::kColumns / 64)};
  } else {
    const CUtensorMap w = F::kKind == ProductKind::forward
                              ? chunk_map(libraries, p.w, e.experts * p.N, p.K, F::kColumns, 1)
                              : chunk_map(libraries, p.w, e.experts * p.K, p.N, F::kDepth, F::kColumns / 64);
    return {chunk_map(libraries, p.x, p.M, p.K, F::kRows, 1), chunk_map(libraries, p.x, p.M, p.K, 8, 1), w};
  }
}

template <class F>
void run(const Libraries& libraries, const ExpertProduct& e) {
  const Product& p = e.all;
  const int columns = blocks_for(p.N, F::kColumns), row_tiles = F::kSumsRows ? blocks_for(p.M, F::kRows) : 0;
  const int64_t most =
      F::kSumsRows ? int64_t{e.experts} * row_tiles : p.M / F::kRows + std::min<int64_t>(p.M, e.experts);
  const int tiles = blocks_for(most * columns, 1);
  const Arguments arguments{
      p.y,     e.offsets, e.experts, static_cast<int>(p.M), static_cast<int>(p.N), static_cast<int>(p.K),
      columns, row_tiles, p.add};
  allow_shared_memory(expert_kernel<F>, F::kShared);
  launch(libraries.lane(), expert_kernel<F>, std::min(tiles, libraries.multiprocessors()), F::kThreads,
         F::kShared, maps_of<F>(libraries, e), arguments);
}

}  // namespace

bool is_wgmma_expert_product(const ExpertProduct& e) {
  const Product& p = e.all;
  for (const void* at : {p.x, p.w, static_cast<const void*>(p.y)})
    if (reinterpret_cast<uintptr_t>(at) % 16 != 0) return false;
  const bool sums_rows = p.kind == ProductKind::weight_gradient;
  if (p.in != DType::bf16 || p.out != (sums_rows ? DType::f32 : DType::bf16) || e.experts > kMostExperts)
    return false;
  switch (p.kind) {
    case ProductKind::forward:
      return p.K % 64 == 0 && p.N % 8 == 0;
    case ProductKind::input_gradient:
      return p.K % 64 == 0 && p.N % 64 == 0;
    case ProductKind::weight_gradient:
      return p.M % 64 == 0 && p.N % 64 == 0;
  }
  return false;
}

void multiply_experts_wgmma(const Libraries& libraries, const ExpertProduct& e, bool few_rows) {
  switch (e.all.kind) {
    case ProductKind::forward:
      if (few_rows) return run<Form<ProductKind::forward, 1, 128, 8, 64, false>>(libraries, e);
      return run<Form<ProductKind::forward, 2, 256, 3, 64, true>>(libraries, e);
    case ProductKind::input_gradient:
      return run<Form<ProductKind::input_gradient, 2, 256, 3, 64, true>>(libraries, e);
    case ProductKind::weight_gradient:
      return run<Form<ProductKind::weight_gradient, 2, 256, 8, 32, false>>(libraries, e);
  }
}

}  // namespace temper::cuda
