#include <algorithm>

#include "kernels/cuda/attention_tiles.h"

namespace temper::cuda {
namespace {

constexpr int kListThreads = 1024, kLengths = 2048;  // tiles are sorted by blocks of keys, up to here
static_assert(kLengths == 2 * kListThreads && kListThreads == 32 * 32);

/// Puts in place of each of two numbers a thread the sum of those before it. Returns that of all.
TEMPER_DEVICE int sum_before(int* numbers) {
  __shared__ int of_warps[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const auto with_lanes_before = [&](int x) {
    for (int w = 1; w < 32; w *= 2) {
      const int y = __shfl_up_sync(~0u, x, w);
      if (lane >= w) x += y;
    }
    return x;
  };
  int2& own = reinterpret_cast<int2*>(numbers)[threadIdx.x];
  const int2 mine = own;
  const int sum = with_lanes_before(mine.x + mine.y);
  if (lane == 31) of_warps[warp] = sum;
  __syncthreads();
  if (warp == 0) of_warps[lane] = with_lanes_before(of_warps[lane]);
  __syncthreads();
  const int before = sum - mine.x - mine.y + (warp > 0 ? of_warps[warp - 1] : 0);
  own = {before, before + mine.x};
  return of_warps[31];
}

/// Tiles of all sequences, those with most keys first. One block.
__global__ void __launch_bounds__(kListThreads)
    list_kernel(Tile* tiles, TileList* list, const AttentionCall a) {
  begin_kernel();
  __shared__ __align__(8) int count[kLengths];
  const auto for_each_tile = [&](auto&& f) {
    for (int s = threadIdx.x; s < a.S; s += kListThreads) {
      const int first = a.cu[s], rows = a.cu[s + 1] - first, length = a.paged ? a.pages.lengths[s] : rows;
      if (a.beside && rows == 1) continue;
      for (int r = 0; r < rows; r += kTileRows) {
        const Tile tile{first + r, min(kTileRows, rows - r), length - rows + r, first, length, s};
        f(tile, kLengths - min(tile.blocks(kTileRows), kLengths));
      }
    }
  };
  for (int i = threadIdx.x; i < kLengths; i += kListThreads) count[i] = 0;
  __syncthreads();
  for_each_tile([&](const Tile&, int bin) { atomicAdd(&count[bin], 1); });
  __syncthreads();
  const int all = sum_before(count);
  if (threadIdx.x == 0) *list = {all, 0};
  __syncthreads();
  for_each_tile([&](const Tile& tile, int bin) { tiles[atomicAdd(&count[bin], 1)] = tile; });
}

}  // namespace

TilesOfCall list_tiles(Ctx& ctx, const AttentionCall& a) {
  const int most = a.T / kTileRows + std::min(a.S, a.T);
  const TilesOfCall made{static_cast<Tile*>(ctx.scratch.allocate(most * int64_t{sizeof(Tile)})),
                         static_cast<TileList*>(ctx.scratch.allocate(sizeof(TileList))), most};
  launch(ctx.lane, list_kernel, 1, kListThreads, 0, made.tiles, made.list, a);
  return made;
}

}  // namespace temper::cuda
