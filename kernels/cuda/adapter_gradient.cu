// Gradients of adapters, dB = scale dy^T u and dA = du^T x: a wide matrix and a narrow one, summed over
// tokens. One chain over all tokens has too few outputs to fill the chip, so parts of 2,048 tokens are chains
// of their own, which are then added ascending. A block of threads takes 128 columns of the wide matrix and
// all of the narrow one's: the wide one is read once, through a ring of shared memory.

#include "kernels/cuda/device/shared_copies.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/scratch/adapter.h"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
constexpr int kThreads = 256, kColumns = 128;  // 16 columns a warp
constexpr int kTokens = 64, kStages = 3;       // tokens of a stage

/// Rows of shared memory are 16 bytes longer than their data: eight of them begin in different banks.
template <int kWidth>
struct Ring {
  static constexpr int kWidePitch = (kColumns + kGroup) * 2, kNarrowPitch = (kWidth + kGroup) * 2;
  static constexpr int kWide = kTokens * kWidePitch, kStage = kWide + kTokens * kNarrowPitch;
  static constexpr int kShared = kStages * kStage;
};

struct Arguments {
  float* parts;  // sums of a part, as the gradient lies
  const bf *wide, *narrow;
  int64_t T, wide_pitch, elements;  // of the gradient
  int narrow_pitch, width;          // width: columns of the narrow matrix that a block of blocks reads
  int tiles;                        // of columns, of all blocks
  AdapterBlocks blocks;
};

/// Columns [first, first + count) of the wide matrix are rows from `to` on of the gradient (of dA: columns),
/// and read the narrow matrix from column `own` on.
struct Tile {
  int64_t first = 0, to = 0;
  int count = 0, own = 0;
};
TEMPER_DEVICE Tile tile_of(const Arguments& p, int tile) {
  Tile of;
#pragma unroll
  for (int i = 0; i < AdapterBlocks::kMost; ++i) {
    if (i >= p.blocks.count) continue;
    const int tiles = static_cast<int>((p.blocks.rows[i] + kColumns - 1) / kColumns);
    if (tile >= 0 && tile < tiles)
      of = {p.blocks.to[i] + tile * int64_t{kColumns}, p.blocks.from[i] + tile * int64_t{kColumns},
            static_cast<int>(min(int64_t{kColumns}, p.blocks.rows[i] - tile * int64_t{kColumns})),
            i * p.width};
    tile -= tiles;
  }
  return of;
}

/// Tokens [begin, end) of both matrices, at most kTokens, to a stage; zeros outside.
template <int kWidth>
TEMPER_DEVICE void load_stage(const Arguments& p, const Tile& of, uint32_t to, int64_t begin, int64_t end) {
  using R = Ring<kWidth>;
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kColumns / kGroup; i += kThreads) {
    const int row = i / (kColumns / kGroup), column = i % (kColumns / kGroup) * kGroup;
    const bool there = begin + row < end && column < of.count;
    copy_async16(to + row * R::kWidePitch + column * 2,
                 there ? p.wide + (begin + row) * p.wide_pitch + of.first + column : p.wide, there);
  }
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kWidth / kGroup; i += kThreads) {
    const int row = i / (kWidth / kGroup), column = i % (kWidth / kGroup) * kGroup;
    const bool there = begin + row < end && column < p.width;
    copy_async16(to + R::kWide + row * R::kNarrowPitch + column * 2,
                 there ? p.narrow + (begin + row) * p.narrow_pitch + of.own + column : p.narrow, there);
  }
}

/// A warp's 16 columns times all of the narrow matrix, over the tokens of a stage in ascending steps of 16.
template <int kWidth>
TEMPER_DEVICE void multiply_stage(float (&sum)[kWidth / 8][4], uint32_t stage) {
  using R = Ring<kWidth>;
  const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32, row = lane & 7;
  const int upper = lane >> 4, odd = lane >> 3 & 1;  // which of four tiles of 8 x 8 this lane addresses
  const uint32_t wide = stage + (row + upper * 8) * R::kWidePitch + (warp * 16 + odd * 8) * 2,
                 narrow = stage + R::kWide + (row + odd * 8) * R::kNarrowPitch + upper * 16;
#pragma unroll
  for (int k = 0; k < kTokens; k += 16) {
    uint32_t a[4];
    ldsm4_transposed(a, wide + k * R::kWidePitch);
#pragma unroll
    for (int j = 0; j < kWidth / 8; j += 2) {
      uint32_t b[4];
      ldsm4_transposed(b, narrow + k * R::kNarrowPitch + j * 16);
      mma16816(sum[j], a, b[0], b[1]);
      mma16816(sum[j + 1], a, b[2], b[3]);
    }
  }
}

/// Blocks: parts of tokens, in each tiles of columns. kTurned: the gradient has a row for each column of the
/// narrow matrix (dA), else one for each of the wide matrix (dB).
template <int kWidth, bool kTurned>
__global__ void __launch_bounds__(kThreads, 2) part_kernel(const Arguments p) {
  using R = Ring<kWidth>;
  extern __shared__ __align__(16) uint8_t memory[];
  begin_kernel();
  const int part = blockIdx.x / p.tiles;
  const Tile of = tile_of(p, blockIdx.x % p.tiles);
  const int64_t begin = part * kAdapterPartTokens, end = min(begin + kAdapterPartTokens, p.T);
  const int stages = static_cast<int>((end - begin + kTokens - 1) / kTokens);
  const uint32_t ring = smem_u32(memory);
  const auto load = [&](int i) {
    if (i < stages)
      load_stage<kWidth>(p, of, ring + i % kStages * R::kStage, begin + i * int64_t{kTokens}, end);
    copies_commit();
  };
  float sum[kWidth / 8][4] = {};
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) load(i);
  for (int i = 0; i < stages; ++i) {
    copies_wait<kStages - 2>();
    __syncthreads();  // the stage is here for all, and the one before it is free
    load(i + kStages - 1);
    multiply_stage<kWidth>(sum, ring + i % kStages * R::kStage);
  }
  const int lane = threadIdx.x & 31, warp = static_cast<int>(threadIdx.x) / 32;
  float* const to = p.parts + part * p.elements;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int column = warp * 16 + half * 8 + (lane >> 2);
    if (column >= of.count) continue;
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
      const int r = j * 8 + (lane & 3) * 2;  // widths are even
      if (r >= p.width) continue;
      const float x = sum[j][half * 2], y = sum[j][half * 2 + 1];
      if constexpr (kTurned) {
        to[r * p.wide_pitch + of.first + column] = x;
        to[(r + 1) * p.wide_pitch + of.first + column] = y;
      } else {
        *reinterpret_cast<float2*>(to + (of.to + column) * p.width + r) = make_float2(x, y);
      }
    }
  }
}

/// Elements [first, first + count) of the gradient: scale times the parts, added ascending.
__global__ void fold_parts_kernel(float* gradient, const float* parts, int64_t first, int64_t count,
                                  int64_t elements, int num_parts, float scale, bool add) {
  begin_kernel();
  const int64_t i = first + blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= first + count) return;
  float sum = parts[i];
  for (int part = 1; part < num_parts; ++part) sum = __fadd_rn(sum, parts[part * elements + i]);
  sum = __fmul_rn(scale, sum);
  gradient[i] = add ? __fadd_rn(gradient[i], sum) : sum;
}

/// Rows [to, to + rows) of dw, columns [own, own + rank), are rows from `from` on of db.
__global__ void take_block_kernel(float* db, const float* dw, int64_t from, int64_t to, int64_t count,
                                  int own, int rank, int width, float scale, bool add) {
  begin_kernel();
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x, row = i / rank, k = i % rank;
  if (i >= count) return;
  const float scaled = __fmul_rn(scale, dw[(to + row) * width + own + k]);
  float& at = db[(from + row) * rank + k];
  at = add ? __fadd_rn(at, scaled) : scaled;
}

void take_blocks(Lane& lane, const Tensor& db, const Tensor& dw, double scale, const AdapterBlocks& blocks,
                 GradWrite write) {
  const int rank = static_cast<int>(db.dim(1));
  for (int i = 0; i < blocks.count; ++i) {
    const int64_t count = blocks.rows[i] * rank;
    launch(lane, take_block_kernel, blocks_for(count, kThreads), kThreads, 0, data_of<float>(db),
           data_of<float>(dw), blocks.from[i], blocks.to[i], count, i * rank, rank,
           static_cast<int>(dw.dim(1)), static_cast<float>(scale), write == GradWrite::add);
  }
}

template <bool kTurned>
void make_parts(Lane& lane, const Arguments& p, int num_parts) {
  const auto run = [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    allow_shared_memory(part_kernel<kWidth, kTurned>, Ring<kWidth>::kShared);
    launch(lane, part_kernel<kWidth, kTurned>, blocks_for(int64_t{num_parts} * p.tiles, 1), kThreads,
           Ring<kWidth>::kShared, p);
  };
  if (p.width <= 32) return run(std::integral_constant<int, 32>());
  if (p.width <= 64) return run(std::integral_constant<int, 64>());
  if (p.width <= 96) return run(std::integral_constant<int, 96>());
  run(std::integral_constant<int, 128>());
}

Arguments arguments_of(const Tensor& parts, const CTensor& wide, const CTensor& narrow, int64_t width,
                       const AdapterBlocks& blocks) {
  int tiles = 0;
  for (int i = 0; i < blocks.count; ++i) tiles += blocks_for(blocks.rows[i], kColumns);
  return {data_of<float>(parts),
          data_of<bf>(wide),
          data_of<bf>(narrow),
          wide.dim(0),
          wide.dim(1),
          parts.dim(1),
          static_cast<int>(narrow.dim(1)),
          static_cast<int>(width),
          tiles,
          blocks};
}

/// Elements [first, first + count) of the gradient.
void fold_parts(Lane& lane, const Tensor& gradient, const Tensor& parts, FlatRange of, double scale,
                GradWrite write) {
  launch(lane, fold_parts_kernel, blocks_for(of.size(), kThreads), kThreads, 0, data_of<float>(gradient),
         data_of<float>(parts), of.begin, of.size(), parts.dim(1), static_cast<int>(parts.dim(0)),
         static_cast<float>(scale), write == GradWrite::add);
}

}  // namespace

void adapter_backward_b(Ctx& ctx, Tensor db, CTensor dy, CTensor u, double scale, AdapterBlocks blocks,
                        GradWrite write) {
  ArenaScope scope(ctx.scratch);
  const int64_t rank = db.dim(1);
  if (!has_adapter_parts(dy, u, blocks, rank)) {
    const Tensor dw = adapter_whole_gradient_scratch(ctx.scratch, dy, u);
    linear_backward_weight(ctx, dw, dy, u, GradWrite::first);
    return take_blocks(ctx.lane, db, dw, scale, blocks, write);
  }
  const Tensor parts = adapter_parts_scratch(ctx.scratch, dy.dim(0), db.size());
  make_parts</*kTurned=*/false>(ctx.lane, arguments_of(parts, dy, u, rank, blocks),
                                static_cast<int>(parts.dim(0)));
  FlatRange of;  // blocks that lie one after the other
  for (int i = 0; i < blocks.count; ++i) {
    const int64_t begin = blocks.from[i] * rank;
    if (begin != of.end) {
      fold_parts(ctx.lane, db, parts, of, scale, write);
      of.begin = begin;
    }
    of.end = begin + blocks.rows[i] * rank;
  }
  fold_parts(ctx.lane, db, parts, of, scale, write);
}

void adapter_backward_a(Ctx& ctx, Tensor da, CTensor du, CTensor x, GradWrite write) {
  const AdapterBlocks whole{1, {0}, {0}, {x.dim(1)}};
  if (!has_adapter_parts(x, du, whole, du.dim(1))) return linear_backward_weight(ctx, da, du, x, write);
  ArenaScope scope(ctx.scratch);
  const Tensor parts = adapter_parts_scratch(ctx.scratch, x.dim(0), da.size());
  make_parts</*kTurned=*/true>(ctx.lane, arguments_of(parts, x, du, du.dim(1), whole),
                               static_cast<int>(parts.dim(0)));
  fold_parts(ctx.lane, da, parts, {0, da.size()}, 1, write);
}

}  // namespace temper::cuda
