#pragma once
// A product of few features that is added to something (u V^T, du A), by tiles: sums stay in registers, and
// what they are added to is read and written once.

#include "kernels/cuda/device/product.cuh"
#include "kernels/cuda/device/shared_copies.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"

namespace temper::cuda {
namespace adapter {

using bf = __nv_bfloat16;
namespace cn = canonical;

/// The block of a row of the product's weights, and its row in B; -1: it has none.
struct Place {
  int block = -1;
  int64_t row = 0;
};
TEMPER_DEVICE Place place_of(const AdapterBlocks& blocks, int64_t row) {
  Place place;
#pragma unroll
  for (int i = 0; i < AdapterBlocks::kMost; ++i)
    if (i < blocks.count && row >= blocks.to[i] && row < blocks.to[i] + blocks.rows[i])
      place = {i, row - blocks.to[i] + blocks.from[i]};
  return place;
}

/// Steps of a sum: [begin, end), of whole steps of the tensor cores.
struct Steps {
  int begin = 0, end = 0;
};
constexpr int kStep = 16;

/// The weights u V^T reads: (n, k) is b[row of n, k - first column of n's block], zero in other blocks.
template <class S>
struct BlockWeights {
  const S* b;
  AdapterBlocks blocks;
  int rank;

  TEMPER_DEVICE bool has(int64_t n) const { return place_of(blocks, n).block >= 0; }
  TEMPER_DEVICE bool has_all(int64_t begin, int64_t end) const {
    int64_t rows = 0;
#pragma unroll
    for (int i = 0; i < AdapterBlocks::kMost; ++i)
      if (i < blocks.count)
        rows += max(int64_t{0}, min(end, blocks.to[i] + blocks.rows[i]) - max(begin, blocks.to[i]));
    return rows == end - begin;
  }
  TEMPER_DEVICE S at(int64_t n, int k) const {
    const Place place = place_of(blocks, n);
    const int own = k - place.block * rank;
    return place.block >= 0 && own >= 0 && own < rank ? b[place.row * rank + own] : cn::store<S>(0.f);
  }
  /// What the outputs [begin, end) read of u.
  TEMPER_DEVICE Steps steps(int64_t begin, int64_t end) const {
    Steps of{1 << 30, 0};
#pragma unroll
    for (int i = 0; i < AdapterBlocks::kMost; ++i) {
      if (i >= blocks.count || end <= blocks.to[i] || begin >= blocks.to[i] + blocks.rows[i]) continue;
      of.begin = min(of.begin, i * rank / kStep * kStep);
      of.end = max(of.end, ((i + 1) * rank + kStep - 1) / kStep * kStep);
    }
    return of.end > 0 ? of : Steps{};
  }
};

/// The weights du A reads: (n, k) is a[k, n].
template <class S>
struct TurnedWeights {
  const S* a;
  int64_t N;
  int K;

  TEMPER_DEVICE bool has(int64_t) const { return true; }
  TEMPER_DEVICE bool has_all(int64_t, int64_t) const { return true; }
  TEMPER_DEVICE S at(int64_t n, int k) const { return k < K && n < N ? a[k * N + n] : cn::store<S>(0.f); }
  TEMPER_DEVICE Steps steps(int64_t, int64_t) const { return {0, (K + kStep - 1) / kStep * kStep}; }
};

constexpr int kStaged = 128;         // features of the weights in shared memory at once
constexpr int kPitch = kStaged + 8;  // so that no two of 8 rows begin in the same banks

/// Columns of a tile are shared out so that a thread holds 8 neighbours of every 32, which the tensor cores
/// take for pairs of four groups: the row in shared memory of a column.
TEMPER_DEVICE int staged_row(int column) {
  return column / 32 * 32 + column % 8 / 2 * 8 + column % 32 / 8 * 2 + column % 2;
}

/// Outputs [n0, n0 + columns) and features [k0, k0 + depth), by all threads.
template <int kColumns>
TEMPER_DEVICE void stage(bf (*to)[kPitch], const BlockWeights<bf>& w, int64_t n0, int k0, int depth) {
  const int groups = depth / kGroup;
  for (int i = static_cast<int>(threadIdx.x); i < kColumns * groups; i += static_cast<int>(blockDim.x)) {
    const int column = i / groups, k = i % groups * kGroup;
    bf* at = &to[staged_row(column)][k];
    const Place place = place_of(w.blocks, n0 + column);
    const int own = k0 + k - place.block * w.rank;
    if (w.rank % kGroup == 0 && place.block >= 0 && own >= 0 && own < w.rank)
      copy_whole<bf, kGroup>(at, w.b + place.row * w.rank + own);
    else
#pragma unroll
      for (int e = 0; e < kGroup; ++e) at[e] = w.at(n0 + column, k0 + k + e);
  }
}
template <int kColumns>
TEMPER_DEVICE void stage(bf (*to)[kPitch], const TurnedWeights<bf>& w, int64_t n0, int k0, int depth) {
  constexpr int kGroups = kColumns / kGroup;
  for (int i = static_cast<int>(threadIdx.x); i < depth * kGroups; i += static_cast<int>(blockDim.x)) {
    const int k = i / kGroups, column = i % kGroups * kGroup;
    RawGroup<bf, kGroup> raw;
    const int64_t left = k0 + k < w.K ? w.N - n0 - column : 0;
    const int count = static_cast<int>(max(int64_t{0}, min(left, int64_t{kGroup})));
    load_raw(raw, w.a + (k0 + k) * w.N + n0 + column, count, count == kGroup && w.N % kGroup == 0);
#pragma unroll
    for (int e = 0; e < kGroup; ++e) to[staged_row(column + e)][k] = raw.at[e];
  }
}

/// A block of threads makes tiles of kWarps * 16 rows and kColumns outputs. With few rows it makes one, and
/// stages weights before it waits for the kernel before. With many there is one wave of blocks, each of which
/// goes down the rows of its columns: weights are staged once, and what the next tile reads is on its way.
template <int kWarps, int kColumns_, bool kFew_>
struct Form {
  static constexpr int kColumns = kColumns_, kRows = kWarps * 16, kThreads = kWarps * 32,
                       kBlocks = 512 / kThreads, kStages = kFew_ ? 1 : 2,
                       kGroups = 2 * kColumns / 32;  // of a thread in a tile, in two rows
  static constexpr bool kFew = kFew_;
};

/// The rows and columns of a tile for one thread: m in a group of 8 rows, n0 the first column of the block.
struct Tile {
  int64_t m = 0, n0 = 0;
  bool inside = false;  // all of it exists, and rows are whole groups
};
template <class F>
struct Tiles {
  int64_t M, N;
  int rows = static_cast<int>((M + F::kRows - 1) / F::kRows);
  int64_t count = int64_t{rows} * ((N + F::kColumns - 1) / F::kColumns);

  /// The first tile of a block of threads: those up to the next block's are its own, down the rows.
  TEMPER_DEVICE int64_t first(uint32_t block) const { return count * block / gridDim.x; }
  TEMPER_DEVICE Tile at(int64_t tile) const {
    const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
    const int64_t m0 = tile % rows * F::kRows, n0 = tile / rows * F::kColumns;
    return {m0 + warp * 16 + (lane >> 2), n0, m0 + F::kRows <= M && n0 + F::kColumns <= N && N % kGroup == 0};
  }
  /// f(group, m, n, count, whole): the groups of a thread, `count` columns from n on of a row m.
  template <class Do>
  TEMPER_DEVICE void each_group(const Tile& tile, Do&& f) const {
    if (tile.inside)
      each_group<true>(tile, f);
    else
      each_group<false>(tile, f);
  }
  template <bool kInside, class Do>
  TEMPER_DEVICE void each_group(const Tile& tile, Do& f) const {
    const int t = threadIdx.x & 3;
#pragma unroll
    for (int group = 0; group < F::kGroups; ++group) {
      const int64_t m = tile.m + group % 2 * 8, n = tile.n0 + group / 2 * 32 + t * 8;
      if (kInside)
        f(group, m, n, kGroup, true);
      else if (m < M && n < N)
        f(group, m, n, static_cast<int>(min(N - n, int64_t{kGroup})), N % kGroup == 0);
    }
  }
};

/// Groups on their way to shared memory; each thread asks for its own and reads no other.
template <class F, class S, int kInputs>
struct Ring {
  using Group = RawGroup<S, kGroup>;
  Group groups[F::kStages][kInputs][F::kGroups][F::kThreads];

  TEMPER_DEVICE Group& at(int stage, int input, int group) {
    return groups[stage][input][group][threadIdx.x];
  }
  TEMPER_DEVICE void ask(int stage, int input, int group, const S* from, int count, bool whole) {
    Group& to = at(stage, input, group);
    if (!whole) return load_raw(to, from, count, false);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Group) / 16); ++i)
      copy_async16(smem_u32(&to) + i * 16, reinterpret_cast<const uint8_t*>(from) + i * 16, true);
  }
};

/// A product u w: 16 rows by each warp. A thread has the columns 8 t to 8 t + 7 of every 32. kAhead steps of
/// u are read at once.
template <class F, int kAhead, class Weights>
struct TileProduct {
  static constexpr int kColumns = F::kColumns;
  bf (*staged)[kPitch];
  const bf* u;
  Weights w;
  int K;
  int64_t M, N;
  int64_t shift = 0;  // of its columns against those of tiles
  Steps steps = {};
  uint32_t added[kColumns / 32] = {};  // bits of the columns of each group that something is added to
  uint32_t read[kAhead][4] = {};
  float sum[kColumns / 8][4] = {};

  TEMPER_DEVICE void aim(int64_t n0) {
    n0 += shift;
    const int64_t end = min(n0 + kColumns, N);
    steps = w.steps(n0, end);
    const bool whole = w.has_all(n0, end);
#pragma unroll
    for (int c = 0; c < kColumns / 32; ++c) {
      added[c] = (1u << kGroup) - 1;
      if (!whole) find_added(c, n0);
    }
  }
  TEMPER_DEVICE void find_added(int c, int64_t n0) {
    added[c] = 0;
#pragma unroll 1
    for (int e = 0; e < kGroup; ++e)
      added[c] |= static_cast<uint32_t>(w.has(n0 + c * 32 + (threadIdx.x & 3) * kGroup + e)) << e;
  }
  /// Weights are staged once for all rows.
  TEMPER_DEVICE bool fits() const { return steps.end - steps.begin <= kStaged; }
  /// Reads nothing but weights, by all threads.
  TEMPER_DEVICE void stage_first(int64_t n0) {
    stage<kColumns>(staged, w, n0 + shift, steps.begin, min(kStaged, steps.end - steps.begin));
  }

  /// Reads the steps of u from k0 on, zero behind the last. Rows beyond M are the last one's: nobody looks at
  /// their sums.
  TEMPER_DEVICE void fetch(int64_t m, int k0) {
    if (K % 2 == 0)
      fetch_pairs(m, k0,
                  [](const bf* row, int k, int) { return *reinterpret_cast<const uint32_t*>(row + k); });
    else
      fetch_pairs(m, k0, [](const bf* row, int k, int end) { return product::pair(row, 1, k, end, true); });
  }
  template <class Pair>
  TEMPER_DEVICE void fetch_pairs(int64_t m, int k0, Pair&& pair) {
    const int t = threadIdx.x & 3, end = min(K, steps.end);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bf* row = u + min(m + half * 8, M - 1) * K;
#pragma unroll
      for (int s = 0; s < kAhead; ++s)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int k = k0 + s * kStep + 2 * t + i * 8;
          read[s][i * 2 + half] = k < end ? pair(row, k, end) : 0;
        }
    }
  }
  TEMPER_DEVICE void fetch_first(const Tile& tile) { fetch(tile.m, steps.begin); }

  TEMPER_DEVICE void multiply_step(const uint32_t (&a)[4], int k) {
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const bf* at = &staged[j * 8 + g][k + 2 * t];
      mma16816(sum[j], a, *reinterpret_cast<const uint32_t*>(at), *reinterpret_cast<const uint32_t*>(at + 8));
    }
  }
  /// By all threads, after stage_first() and fetch_first().
  TEMPER_DEVICE void multiply(const Tile& tile) {
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0;
    for (int k0 = steps.begin; k0 < steps.end; k0 += kStaged) {
      const int depth = min(kStaged, steps.end - k0);
      if (k0 > steps.begin) {
        __syncthreads();
        stage<kColumns>(staged, w, tile.n0 + shift, k0, depth);
        __syncthreads();
      }
      for (int k = 0; k < depth; k += kAhead * kStep) {
        if (k0 + k > steps.begin) fetch(tile.m, k0 + k);
#pragma unroll
        for (int s = 0; s < kAhead; ++s)
          if (k + s * kStep < depth) multiply_step(read[s], k + s * kStep);
      }
    }
  }
  /// What is added to column e of a thread's group.
  TEMPER_DEVICE float add_to(float y, float scale, int group, int e) const {
    const int c = group / 2, half = group % 2;
    return added[c] >> e & 1 ? __fmaf_rn(scale, sum[c * 4 + e / 2][half * 2 + e % 2], y) : y;
  }
};

/// The tiles of a block of threads. ask(stage, tile) begins to read what products are added to,
/// finish(stage, tile) has it and the sums.
template <class F, class Ask, class Finish, class... Products>
TEMPER_DEVICE void make_tiles(const Tiles<F>& tiles, Ask&& ask, Finish&& finish, Products&... products) {
  const int64_t first = tiles.first(blockIdx.x), last = tiles.first(blockIdx.x + 1);
  Tile tile = tiles.at(first);
  (products.aim(tile.n0), ...);
  if constexpr (F::kFew) (products.stage_first(tile.n0), ...);
  wait_for_previous_kernel();
  ask(0, tile);
  copies_commit();
  (products.fetch_first(tile), ...);
  if constexpr (!F::kFew) (products.stage_first(tile.n0), ...);
  __syncthreads();
  for (int64_t i = first; i < last; ++i) {
    const int stage = static_cast<int>(i - first) % F::kStages;
    const bool is_last = F::kStages == 1 || i + 1 == last;
    const Tile next = is_last ? tile : tiles.at(i + 1);
    if (!is_last) ask(F::kStages - 1 - stage, next);
    copies_commit();
    (products.multiply(tile), ...);
    const bool stays = next.n0 == tile.n0 && (products.fits() && ...);
    if (!is_last && stays) (products.fetch_first(next), ...);
    copies_wait<1>();
    finish(stage, tile);
    tile = next;
    if (is_last || stays) continue;
    __syncthreads();
    (products.aim(tile.n0), ...);
    (products.stage_first(tile.n0), ...);
    (products.fetch_first(tile), ...);
    __syncthreads();
  }
}

template <class F, class S, int kInputs, int kProducts>
struct SharedOf {
  Ring<F, S, kInputs> ring;
  bf staged[kProducts][F::kColumns][kPitch];
};
template <class Shared>
TEMPER_DEVICE Shared& shared_memory() {
  extern __shared__ __align__(16) uint8_t bytes[];
  return *reinterpret_cast<Shared*>(bytes);
}
}  // namespace adapter
}  // namespace temper::cuda
