#pragma once
// Grouped products on tensor cores: the forms of a tile, the order of tiles, the ring of shared memory
// (kernels/cuda/experts_linear_sm90.cu).

#include "kernels/cuda/device/canonical.cuh"
#include "kernels/cuda/device/wgmma_wide.cuh"
#include "kernels/cuda/experts_linear.h"

namespace temper::cuda::expert_tiles {

// ---- copies into the L2 cache
PTX void prefetch_3d(const CUtensorMap* m, int x, int y, int z) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1,%2,%3}];" ::"l"(m), "r"(x), "r"(y),
               "r"(z)
               : "memory");
}
PTX void prefetch_bytes(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

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

/// What the warpgroups that multiply do with a tile.
enum class Team {
  together,  // each 64 rows of it
  apart,     // the same, the second some stages behind the first: one multiplies while the other stores
  in_turn    // all 128 rows, of every second tile: the same
};

/// A kind of product with its tiles: warpgroups that multiply, columns, stages of the ring and steps of each;
/// blocks of threads of a multiprocessor; are the next tile's operands, or the outputs that are added to,
/// fetched into the L2 cache ahead; do outputs of a weight gradient go out as whole lines?
template <ProductKind kKindOf, int kConsumersOf, int kColumnsOf, int kStagesOf, int kDepthOf,
          Team kTeamOf = Team::together, int kBlocksOf = 1, bool kAheadOf = true, bool kLinesOf = true>
struct Form {
  static constexpr ProductKind kKind = kKindOf;
  static constexpr Team kTeam = kTeamOf;
  static constexpr bool kSumsRows = kKind == ProductKind::weight_gradient;
  static constexpr bool kFewRows = kConsumersOf == 1;
  static constexpr bool kWaits = !kSumsRows && !kFewRows;  // outputs, in shared memory
  static constexpr bool kAhead = kAheadOf && !kFewRows, kLines = kLinesOf;
  static constexpr bool kInTurn = kTeam == Team::in_turn;
  static constexpr int kConsumers = kConsumersOf, kColumns = kColumnsOf, kStages = kStagesOf;
  static constexpr int kBlocks = kBlocksOf;
  static constexpr int kTall = kInTurn ? 2 : 1;  // rows of a warpgroup, in 64
  static constexpr int kRows = kInTurn ? 128 : 64 * kConsumers, kThreads = 128 * kConsumers + (kBlocks == 1 ? 128 : 32);
  static constexpr bool kMovesRegisters = !kFewRows && kBlocks == 1;
  static constexpr int kDepth = kDepthOf, kSteps = kDepth / 16;
  static constexpr int kChunk = kDepth * 128;  // bytes of a stage's rows of 64 elements
  static constexpr int kLeft = kRows / 64 * kChunk, kStage = kLeft + kColumns / 64 * kChunk;
  static constexpr int kPitch = kColumns * 2 + 16;  // of outputs that wait: eight rows hit all banks
  static constexpr int kShared = kStages * kStage + (kWaits ? kRows * kPitch : 0) + 1024;
  static constexpr int kBehind = 5;  // stages, of a second warpgroup that is apart
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
  TEMPER_DEVICE void skip(int stages) {
    const int to = stage + stages;
    stage = to % kStages, phase ^= to / kStages & 1;
  }
};

/// Barriers of the stages, of the stage whose rows past the end of the expert are cleared, of the turns.
template <int kStages>
struct Bars {
  uint64_t full[kStages], empty[kStages], tail, turns[2];
};

}  // namespace temper::cuda::expert_tiles
