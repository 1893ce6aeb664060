// Grouped products on tensor cores (sm_90a). Blocks of threads stay and take tiles in turn, 64 rows of
// outputs for each consuming warpgroup: one warp fills a ring of shared memory by tensor copies (TMA,
// 128-byte swizzle), the warpgroups multiply by wgmma, some steps of the sum a stage. One accumulator per
// output over ascending steps from the start of the expert. Forward and input gradient: rows do not know each
// other, so a tile loads past the end of its expert and stores up to it; outputs of many rows wait in shared
// memory and go out during the next tile, a few rows a stage, as loads queue behind what is sent at once.
// Weight gradient: the sum is over rows, so those past the end become zeros in shared memory, and steps of 16
// without a row are left out.

#include <algorithm>

#include "kernels/cuda/experts_tiles.cuh"
#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
namespace cn = canonical;

using expert_tiles::Arguments, expert_tiles::Bars, expert_tiles::Experts, expert_tiles::Form, expert_tiles::Order,
    expert_tiles::Ring, expert_tiles::Team, expert_tiles::Tile, expert_tiles::kMostExperts;

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
  /// Into the L2 cache: a stage of the tile after this one, what other blocks of threads read too once.
  TEMPER_DEVICE void prefetch(const Tile& tile, int k) const {
    if ((tile.row - order.experts.offsets[tile.expert]) % (expert_tiles::kBand * F::kRows) == 0) {
      if constexpr (F::kKind == ProductKind::forward)
        expert_tiles::prefetch_3d(&maps.right, 0, tile.expert * p.N + tile.n, k);
      else
        expert_tiles::prefetch_3d(&maps.right, 0, tile.expert * p.K + k * F::kDepth, tile.n / 64);
    }
    if (tile.n == 0) expert_tiles::prefetch_3d(&maps.left, 0, tile.row, k);
  }
  /// Into the L2 cache: a stage's share of the outputs that the sums are added to.
  TEMPER_DEVICE void prefetch_outputs(const Tile& tile, int k, int stages) const {
    const int end = min((k + 1) * F::kRows / stages, p.M - tile.m);
    const float* const from = static_cast<const float*>(p.y) + int64_t{tile.expert} * p.M * p.N + tile.n;
    for (int r = k * F::kRows / stages + lane; r < end; r += 32)
      expert_tiles::prefetch_bytes(from + int64_t{tile.m + r} * p.N, min(F::kColumns, p.N - tile.n) * 4);
  }
  TEMPER_DEVICE void run() {
    Ring<F::kStages> at{0, 1};  // the first round passes at once
    const int count = order.count();
    if constexpr (F::kBlocks == 2 && F::kTeam == Team::apart)
      if (2 * blockIdx.x >= gridDim.x) __nanosleep(3000);
    for (int t = blockIdx.x; t < count; t += gridDim.x) {
      const Tile tile = order.tile(t);
      const int stages = order.stages(tile);
      const bool more = F::kAhead && !F::kSumsRows && t + static_cast<int>(gridDim.x) < count;
      const Tile ahead = more ? order.tile(t + gridDim.x) : tile;
      for (int k = 0; k < stages; ++k, at.next()) {
        const int rows = tile.rows - k * F::kDepth;
        const bool cut = F::kSumsRows && rows < F::kDepth;
        const uint32_t to = ring + at.stage * F::kStage, bar = full + at.stage * 8;
        if (lane == 0) {
          mbar_wait(empty + at.stage * 8, at.phase);
          load(tile, k, to, cut ? tail : bar);
          if constexpr (F::kAhead && !F::kSumsRows)
            if (more) prefetch(ahead, k);
        }
        if constexpr (F::kAhead && F::kSumsRows)
          if (p.add) {
            __syncwarp();
            prefetch_outputs(tile, k, stages);
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
  uint32_t ring, full, empty, turns;
  int group, warp, lane;
  Ring<F::kStages> at{0, 0};
  char* to = nullptr;  // where this lane's row of outputs that wait goes
  int bytes = 0;       // of it that were not sent

  using Sums = float[F::kTall][F::kColumns / 2];

  TEMPER_DEVICE void wait() const { wait(full + at.stage * 8, at.phase); }
  TEMPER_DEVICE void wait(uint32_t bar, int phase) const {
    if (lane == 0) mbar_wait(bar, phase);
    __syncwarp();
  }
  TEMPER_DEVICE void release(int stage) const {
    if (lane == 0) mbar_arrive(empty + stage * 8);
  }
  TEMPER_DEVICE uint64_t left() const {
    return smem_descriptor(ring + at.stage * F::kStage + (F::kInTurn ? 0 : group * F::kChunk),
                           F::kSumsRows ? F::kChunk : 16, 1024);
  }
  TEMPER_DEVICE uint64_t right() const {
    return smem_descriptor(ring + at.stage * F::kStage + F::kLeft,
                           F::kKind == ProductKind::forward ? 16 : F::kChunk, 1024);
  }
  /// Step kk of 16 in a stage: 32 bytes along a row, or 16 rows.
  TEMPER_DEVICE static void step(Sums& sums, uint64_t a, uint64_t b, int kk, int keep) {
#pragma unroll
    for (int i = 0; i < F::kTall; ++i) {
      const uint64_t own = a + i * (F::kChunk / 16);
      if constexpr (F::kKind == ProductKind::forward)
        wgmma_ss(sums[i], own + 2 * kk, b + 2 * kk, keep);
      else if constexpr (F::kSumsRows)
        wgmma_tn(sums[i], own + 128 * kk, b + 128 * kk, keep);
      else
        wgmma_ss_turned(sums[i], own + 2 * kk, b + 128 * kk, keep);
    }
  }
  /// The other warpgroup's turn.
  TEMPER_DEVICE void pass() const {
    if constexpr (F::kInTurn)
      if (lane == 0) mbar_arrive(turns + (group ^ 1) * 8);
  }
  TEMPER_DEVICE void finish(Sums& sums, int previous) const {
    wg_wait<0>();
#pragma unroll
    for (int i = 0; i < F::kTall; ++i) pin(sums[i]);
    pass();
    if (previous >= 0) release(previous);
  }

  /// Stages with all of their steps. The stage before is free once the first step of the next is all that is
  /// under way.
  TEMPER_DEVICE void multiply(Sums& sums, int stages) {
    int previous = -1;
    for (int k = 0; k < stages; ++k, at.next()) {
      wait();
      const uint64_t a = left(), b = right();
      wg_fence();
      step(sums, a, b, 0, k > 0);
      wg_commit();
      wg_wait<1>();
      if (previous >= 0) release(previous);
#pragma unroll
      for (int kk = 1; kk < F::kSteps; ++kk) step(sums, a, b, kk, 1);
      wg_commit();
      if constexpr (F::kWaits) send(2 * k, 2 * k + 2);
      previous = at.stage;
    }
    finish(sums, previous);
  }
  /// The same where the last stage may have fewer: one at a time, as the compiler takes branches between them
  /// for a reason to wait for each.
  TEMPER_DEVICE void multiply_steps(Sums& sums, int steps) {
    int previous = -1;
    for (int k = 0; k < steps; ++k) {
      const int kk = k % F::kSteps;
      if (kk == 0) wait();
      const uint64_t a = left(), b = right();
      wg_fence();
      step(sums, a, b, kk, k > 0);
      wg_commit();
      wg_wait<1>();
      if (kk == 0 && previous >= 0) release(previous);
      previous = at.stage;
      if (kk == F::kSteps - 1) at.next();
    }
    finish(sums, previous);
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
  /// fp32, 16 bytes a lane: rows of 128 bytes. The upper half of a warp changes rows with the lower.
  TEMPER_DEVICE void store_lines(const float (&sum)[F::kColumns / 2], const Tile& tile, int first) const {
    const bool high = lane & 16;
    float* const to = static_cast<float*>(p.y) +
                      (int64_t{tile.expert} * p.M + first + warp * 16 + (lane >> 2 & 3)) * p.N;
    const int n0 = tile.n + ((lane & 1) + (high ? 2 : 0)) * 8 + (lane & 2) * 2;
    constexpr int kAtOnce = F::kBlocks == 2 ? 1 : 2;  // lines of a row whose old values are read at once
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < F::kColumns / 8; j += 4 * kAtOnce) {
        float4 held[kAtOnce][2];
        const auto at = [&](int k, int i) {
          const int n = n0 + (j + 4 * k) * 8;
          return n < p.N ? reinterpret_cast<float4*>(to + (8 * half + 4 * i) * int64_t{p.N} + n) : nullptr;
        };
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (const float4* from = at(k, i); p.add && from != nullptr) held[k][i] = __ldcs(from);
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const float* const f = sum + 4 * (j + 4 * k) + 2 * half;
          const float4 a = four(f, f + 4), b = four(f + 8, f + 12), other = swap_halves(pick(high, a, b));
          const float4 values[2]{pick(high, other, a), pick(high, b, other)};
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float4 v = values[i];
            if (p.add)
              v = make_float4(__fadd_rn(v.x, held[k][i].x), __fadd_rn(v.y, held[k][i].y),
                              __fadd_rn(v.z, held[k][i].z), __fadd_rn(v.w, held[k][i].w));
            if (float4* out = at(k, i); out != nullptr) __stcs(out, v);
          }
        }
      }
  }
  TEMPER_DEVICE static float4 pick(bool first, const float4& a, const float4& b) {
    return make_float4(first ? a.x : b.x, first ? a.y : b.y, first ? a.z : b.z, first ? a.w : b.w);
  }
  TEMPER_DEVICE static float4 swap_halves(const float4& v) {
    return make_float4(__shfl_xor_sync(~0u, v.x, 16), __shfl_xor_sync(~0u, v.y, 16),
                       __shfl_xor_sync(~0u, v.z, 16), __shfl_xor_sync(~0u, v.w, 16));
  }
  /// fp32, 16 bytes a lane.
  TEMPER_DEVICE void store_block(const float (&sum)[F::kColumns / 2], const Tile& tile, int first) const {
    const int m = first + warp * 16 + (lane >> 2);
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
  TEMPER_DEVICE void store_zeros(const Tile& tile, int first) const {
    float* const to = static_cast<float*>(p.y) + (int64_t{tile.expert} * p.M + first) * p.N;
    for (int i = threadIdx.x & 127; i < 64 * F::kColumns / 4; i += 128)
      if (const int n = tile.n + i % (F::kColumns / 4) * 4; n < p.N)
        *reinterpret_cast<float4*>(to + i / (F::kColumns / 4) * int64_t{p.N} + n) = make_float4(0, 0, 0, 0);
  }

  TEMPER_DEVICE void store_sums(const Sums& sums, const Tile& tile) const {
#pragma unroll
    for (int i = 0; i < F::kTall; ++i) {
      const int first = tile.m + 64 * (F::kInTurn ? i : group);
      if (first >= p.M) continue;
      if (tile.rows > 0) {
        if constexpr (F::kLines)
          store_lines(sums[i], tile, first);
        else
          store_block(sums[i], tile, first);
      } else if (!p.add) {
        store_zeros(tile, first);
      }
    }
  }
  TEMPER_DEVICE void work(Sums& sums, const Tile& tile) {
    const int stages = order.stages(tile), begin = group * 64;
    if (F::kSumsRows ? tile.m + begin >= p.M : begin >= tile.rows) return skip(stages);
    if constexpr (F::kSumsRows) {
      if (F::kTeam == Team::apart && F::kBlocks == 1 && group == 1 && stages > F::kBehind) {
        Ring<F::kStages> later = at;
        later.skip(F::kBehind);
        wait(full + later.stage * 8, later.phase);
      }
      if (tile.rows > 0) multiply_steps(sums, (tile.rows + 15) / 16);
      store_sums(sums, tile);
    } else {
      multiply(sums, stages);
      if constexpr (F::kWaits)
        keep_rows(sums[0], tile);
      else
        store_rows(sums[0], tile);
    }
  }
  /// The turn-th of the tiles of this warpgroup.
  TEMPER_DEVICE void work_in_turn(Sums& sums, const Tile& tile, int turn) {
    wait(turns + group * 8, (turn + group + 1) & 1);
    if (tile.rows > 0)
      multiply_steps(sums, (tile.rows + 15) / 16);
    else
      pass();
    store_sums(sums, tile);
  }
  TEMPER_DEVICE void run_in_turn() {
    const int count = order.count(), step = gridDim.x;
    Sums sums;
    int t = blockIdx.x;
    if (group == 1 && t < count) {
      at.skip(order.stages(order.tile(t)));
      t += step;
    }
    for (int turn = 0; t < count; t += 2 * step, ++turn) {
      work_in_turn(sums, order.tile(t), turn);
      if (t + step < count) at.skip(order.stages(order.tile(t + step)));
    }
  }
  /// The next tile is known before the work on one begins: nothing waits for it.
  TEMPER_DEVICE void run() {
    if constexpr (F::kInTurn) return run_in_turn();
    const int count = order.count(), first = blockIdx.x, step = gridDim.x;
    if (first >= count) return;
    Sums sums;
    Tile next = order.tile(first);
    for (int t = first; t < count; t += step) {
      const Tile tile = next;
      if (t + step < count) next = order.tile(t + step);
      work(sums, tile);
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
__global__ void __launch_bounds__(F::kThreads, F::kBlocks)
    expert_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Arguments p) {
  begin_kernel();
  extern __shared__ uint8_t raw[];
  __shared__ __align__(8) Bars<F::kStages> bars;
  __shared__ Experts experts;
  const int group = __shfl_sync(~0u, threadIdx.x >> 7, 0), warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
  const uint32_t ring = (smem_u32(raw) + 1023) & ~1023u, full = smem_u32(bars.full),
                 empty = smem_u32(bars.empty), tail = smem_u32(&bars.tail), turns = smem_u32(bars.turns);
  if (threadIdx.x == 0) {
    for (int i = 0; i < F::kStages; ++i) {
      mbar_init(full + 8 * i, 1);
      mbar_init(empty + 8 * i, F::kInTurn ? 4 : 4 * F::kConsumers);
    }
    mbar_init(tail, 1);
    for (int i = 0; i < 2; ++i) mbar_init(turns + 8 * i, 4);
    fence_barrier_init();
  }
  experts.load(p, F::kRows);
  __syncthreads();
  const Order<F> order{p, experts};
  if (group == F::kConsumers) {
    if constexpr (F::kMovesRegisters) reg_dec<kProducerRegisters>();
    if (warp == 0) Producer<F>{p, maps, order, ring, full, empty, tail, lane}.run();
  } else {
    if constexpr (F::kMovesRegisters) reg_inc<kConsumerRegisters>();
    Consumer<F>{p, order, ring, full, empty, turns, group, warp, lane}.run();
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
    const CUtensorMap dy = chunk_map(libraries, p.x, p.K, p.M, F::kDepth, F::kRows / 64);
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
  launch(libraries.lane(), expert_kernel<F>, std::min(tiles, F::kBlocks * libraries.multiprocessors()), F::kThreads,
         F::kShared, maps_of<F>(libraries, e), arguments);
}

void run_weight_gradient(const Libraries& libraries, const ExpertProduct& e, int form) {
  constexpr auto kind = ProductKind::weight_gradient;
  switch (form) {
    case 0:
      return run<Form<kind, 2, 256, 8, 32, Team::together, 1, false, false>>(libraries, e);
    case 1:
      return run<Form<kind, 2, 256, 8, 32>>(libraries, e);
    case 2:
      return run<Form<kind, 2, 256, 9, 32, Team::apart>>(libraries, e);
    case 3:
      return run<Form<kind, 2, 128, 6, 32, Team::together, 2>>(libraries, e);
    case 4:
      return run<Form<kind, 2, 128, 6, 32, Team::apart, 2>>(libraries, e);
    default:
      return run<Form<kind, 2, 128, 6, 64, Team::in_turn>>(libraries, e);
  }
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

void multiply_experts_wgmma(const Libraries& libraries, const ExpertProduct& e, bool few_rows, int form) {
  constexpr auto forward = ProductKind::forward, input = ProductKind::input_gradient;
  switch (e.all.kind) {
    case forward:
      if (few_rows) return run<Form<forward, 1, 128, 8, 64>>(libraries, e);
      if (form == 0) return run<Form<forward, 2, 256, 3, 64, Team::together, 1, false>>(libraries, e);
      return run<Form<forward, 2, 256, 3, 64>>(libraries, e);
    case input:
      if (form == 0) return run<Form<input, 2, 256, 3, 64, Team::together, 1, false>>(libraries, e);
      return run<Form<input, 2, 256, 3, 64>>(libraries, e);
    case ProductKind::weight_gradient:
      return run_weight_gradient(libraries, e, form);
  }
}

}  // namespace temper::cuda
