// The plain kernels of grouped products. The grid is that of the worst case: of tiles of `size` rows expert e
// has those from offsets[e] / size + e on, of which some may have no rows.

#include "kernels/cuda/device/experts.cuh"
#include "kernels/cuda/experts_linear.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_plain.h"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
using product::Operand, product::Result;
constexpr int kFp32Columns = 64;
using Fp32Tile = product::Fp32<kFp32Columns>;

template <class Y, class S>
struct Call {
  Result<Y, S> result;
  Operand<S> x, w;
  const int32_t* offsets;
  int experts, column_blocks;
  int row_blocks;  // of an expert's weight gradient
  int64_t M, N, K;
};

/// go(call of one expert alone, m0, n0) for the tile of this block, if it has outputs. `kSumsRows`: the sum
/// is over the rows of the expert, which else are rows of the outputs.
template <bool kSumsRows, class Y, class S, class Go>
TEMPER_DEVICE void with_tile(Call<Y, S> c, int tile_rows, int tile_columns, Go&& go) {
  const int tile = blockIdx.x / c.column_blocks;
  const int64_t n0 = blockIdx.x % c.column_blocks * int64_t{tile_columns};
  const int e = kSumsRows ? tile / c.row_blocks : expert_of_tile(c.offsets, c.experts, tile, tile_rows);
  const int64_t begin = c.offsets[e], count = c.offsets[e + 1] - begin;
  const int64_t m0 =
      (kSumsRows ? tile % c.row_blocks : tile - first_tile(c.offsets, e, tile_rows)) * int64_t{tile_rows};
  if constexpr (kSumsRows) {
    if (count == 0 && c.result.add) return;
    c.x.data += begin * c.x.depth;
    c.w.data += begin * c.w.depth;
    c.result.y += e * c.M * c.result.pitch;
    c.K = count;
  } else {
    if (m0 < 0 || m0 >= count) return;  // before the first expert, or behind its rows
    c.x.data += begin * c.x.outer;
    c.w.data += e * c.N * c.K;
    c.result.y += begin * c.result.pitch;
    c.M = count;
  }
  go(c, m0, n0);
}

template <bool kSumsRows, class Y>
__global__ void expert_chain_kernel(const Call<Y, bf> call) {
  begin_kernel();
  with_tile<kSumsRows>(call, product::kChainRows, product::kChainColumns,
                       [](const Call<Y, bf>& c, int64_t m0, int64_t n0) {
                         product::chain_tile(c.result, c.x, c.w, c.M, c.N, c.K, m0, n0);
                       });
}

template <bool kSumsRows>
__global__ void __launch_bounds__(Fp32Tile::kThreads) expert_fp32_kernel(const Call<float, float> call) {
  begin_kernel();
  with_tile<kSumsRows>(call, Fp32Tile::kRows, kFp32Columns,
                       [](const Call<float, float>& c, int64_t m0, int64_t n0) {
                         Fp32Tile::tile(c.result, c.x, c.w, c.M, c.N, c.K, m0, n0);
                       });
}

template <bool kSumsRows, class Y, class S>
void run(Lane& lane, const ExpertProduct& p, int tile_rows, int tile_columns, int threads,
         void (*kernel)(Call<Y, S>)) {
  const Product& all = p.all;
  const int columns = blocks_for(all.N, tile_columns),
            row_blocks = kSumsRows ? blocks_for(all.M, tile_rows) : 0;
  const int64_t tiles =
      kSumsRows ? int64_t{p.experts} * row_blocks : most_row_tiles(all.M, p.experts, tile_rows);
  const Call<Y, S> call{result_of<Y, S>(all),
                        left_operand<S>(all),
                        right_operand<S>(all),
                        p.offsets,
                        p.experts,
                        columns,
                        row_blocks,
                        all.M,
                        all.N,
                        all.K};
  launch(lane, kernel, blocks_for(columns * tiles, 1), threads, 0, call);
}

template <bool kSumsRows>
void run_plain(Lane& lane, const ExpertProduct& p) {
  if (p.all.in == DType::f32)
    return run<kSumsRows, float, float>(lane, p, Fp32Tile::kRows, kFp32Columns, Fp32Tile::kThreads,
                                        expert_fp32_kernel<kSumsRows>);
  dispatch_gpu_storage(p.all.out, [&](auto y) {
    using Y = decltype(y);
    run<kSumsRows, Y, bf>(lane, p, product::kChainRows, product::kChainColumns, 32,
                          expert_chain_kernel<kSumsRows, Y>);
  });
}

}  // namespace

void multiply_experts_plain(Lane& lane, const ExpertProduct& p) {
  if (p.all.kind == ProductKind::weight_gradient)
    run_plain<true>(lane, p);
  else
    run_plain<false>(lane, p);
}

}  // namespace temper::cuda
