// Products of at most 64 rows: the weights are read once, at the rate of memory. A block owns R weight rows
// at a time; one warp streams boxes of [R x 64 KB] weights, another the matching boxes of x, through rings of
// shared memory (TMA, 128-byte swizzle, L2 policy: weights evict first, tokens last); a warpgroup multiplies
// by wgmma m64nRk16, tokens as the 64 rows of A (rows beyond M hold anything and are never stored), weights
// as B. One accumulator per output over ascending K. The weight ring fills while the previous kernel still
// runs (programmatic dependent launch): only x depends on it.
//
// Gated: the weights are those of gate and up, [2N, K]; a block owns R / 2 rows of each, which a box of four
// dimensions lays side by side, so that a thread holds the gate and the up of its outputs and writes their
// SwiGLU.
//
// Pair: two products of one x, of which the second has few outputs: its tiles come last, beside those of the
// first, and its time is not seen.

#include <algorithm>

#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"

namespace temper::cuda {
namespace {

using bf = __nv_bfloat16;
namespace cn = canonical;
constexpr int kMaxStages = 32, kConsumerWarps = 4, kThreads = (kConsumerWarps + 2) * 32;
constexpr int kLeastRing = 8192;  // bytes of weights: A reads 64 rows of x, however few there are

enum class Form { plain, gated, pair };

struct SkinnyArguments {
  void* y;
  const bf* bias;
  int64_t pitch;
  int M, N, K;  // N: outputs, half of the weight rows where gated
  int x_rows;   // of an x box: 8, 16, 32 or 64
  int stages;   // of both rings
  int tiles;    // of R weight rows
  bool bf16_out;
  int second_tile;  // a pair: where the tiles of the second product begin
  bf* second;       // its outputs
  int second_pitch;
};

/// Position in a ring; `phase` flips at every round.
struct Ring {
  int stage = 0, phase, stages;
  TEMPER_DEVICE void next() {
    if (++stage == stages) stage = 0, phase ^= 1;
  }
};

TEMPER_DEVICE void store_pair(const SkinnyArguments& p, int m, int n, float a, float b) {
  if (m >= p.M || n >= p.pitch) return;
  if (p.bias != nullptr) {
    a = __fadd_rn(a, cn::load(p.bias[n]));
    b = __fadd_rn(b, cn::load(p.bias[n + 1]));
  }
  const int64_t at = m * p.pitch + n;
  if (p.bf16_out)
    *reinterpret_cast<uint32_t*>(static_cast<bf*>(p.y) + at) = cn::pack(a, b);
  else
    *reinterpret_cast<float2*>(static_cast<float*>(p.y) + at) = make_float2(a, b);
}

/// Two neighbouring outputs of the second product of a pair.
TEMPER_DEVICE void store_second_pair(const SkinnyArguments& p, int m, int n, float a, float b) {
  if (m >= p.M || n >= p.second_pitch) return;
  *reinterpret_cast<uint32_t*>(p.second + int64_t{m} * p.second_pitch + n) = cn::pack(a, b);
}

/// Two neighbouring outputs of gate and up, rounded as the product alone would round them.
TEMPER_DEVICE void store_gated_pair(const SkinnyArguments& p, int m, int n, const float* gate,
                                    const float* up) {
  if (m >= p.M || n >= p.N) return;
  float a[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float g = gate[i], u = up[i];
    if (p.bias != nullptr) {
      g = __fadd_rn(g, cn::load(p.bias[n + i]));
      u = __fadd_rn(u, cn::load(p.bias[p.N + n + i]));
    }
    a[i] = cn::swiglu(cn::load(cn::store<bf>(g)), cn::load(cn::store<bf>(u)));
  }
  *reinterpret_cast<uint32_t*>(static_cast<bf*>(p.y) + m * p.pitch + n) = cn::pack(a[0], a[1]);
}

/// One warp's elected thread keeps its ring full: boxes of `rows` rows, KB x 64 columns, for all tiles.
/// `second`: of a pair.
template <int R, int KB, bool kWeights, Form kForm>
TEMPER_DEVICE void produce(const CUtensorMap* map, const CUtensorMap* second, const SkinnyArguments& p,
                           uint32_t full, uint32_t empty, uint32_t ring) {
  const int steps = p.K / (64 * KB), bytes = KB * (kWeights ? R : p.x_rows) * 128;
  if (!kWeights) wait_for_previous_kernel();
  Ring at{0, 1, p.stages};  // the first round passes at once
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x)
    for (int k = 0; k < steps; ++k, at.next()) {
      const uint32_t bar = full + at.stage * 8;
      mbar_wait(empty + at.stage * 8, at.phase);
      mbar_expect(bar, bytes);
      const uint32_t to = ring + at.stage * bytes;
      if constexpr (kWeights && kForm == Form::pair) {
        const bool first = tile < p.second_tile;
        tma_3d_cached(to, first ? map : second, bar, 0, (first ? tile : tile - p.second_tile) * R, k * KB,
                      kEvictFirst);
      } else if constexpr (kWeights && kForm == Form::gated)
        tma_4d_cached(to, map, bar, 0, tile * (R / 2), 0, k * KB, kEvictFirst);
      else
        tma_3d_cached(to, map, bar, 0, kWeights ? tile * R : 0, k * KB, kWeights ? kEvictFirst : kEvictLast);
    }
}

template <int R, int KB, Form kForm>
__global__ void __launch_bounds__(kThreads, 1)
    skinny_kernel(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap second_map,
                  const __grid_constant__ CUtensorMap x_map, const SkinnyArguments p) {
  constexpr bool kGated = kForm == Form::gated;
  extern __shared__ uint8_t raw[];
  __shared__ __align__(8) uint64_t bars[4][kMaxStages];  // full, empty of weights; full, empty of x
  const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0), lane = threadIdx.x & 31;
  const uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
  const uint32_t x_bytes = KB * p.x_rows * 128, w_bytes = KB * R * 128;
  const uint32_t x_ring = base, w_ring = base + p.stages * x_bytes;
  if (threadIdx.x < p.stages) {
    mbar_init(smem_u32(&bars[0][threadIdx.x]), 1);
    mbar_init(smem_u32(&bars[1][threadIdx.x]), kConsumerWarps);
    mbar_init(smem_u32(&bars[2][threadIdx.x]), 1);
    mbar_init(smem_u32(&bars[3][threadIdx.x]), kConsumerWarps);
    fence_barrier_init();
  }
  launch_dependents();
  __syncthreads();
  if (warp == kConsumerWarps) {
    if (elect())
      produce<R, KB, true, kForm>(&w_map, &second_map, p, smem_u32(&bars[0][0]), smem_u32(&bars[1][0]),
                                  w_ring);
    return;
  }
  if (warp == kConsumerWarps + 1) {
    if (elect())
      produce<R, KB, false, kForm>(&x_map, nullptr, p, smem_u32(&bars[2][0]), smem_u32(&bars[3][0]), x_ring);
    return;
  }
  // Lane 0 serves the weight ring, lane 1 the token ring.
  const uint32_t full = smem_u32(&bars[lane == 1 ? 2 : 0][0]), empty = smem_u32(&bars[lane == 1 ? 3 : 1][0]);
  const auto release = [&](int stage) {
    if (lane < 2) mbar_arrive(empty + stage * 8);
  };
  const int steps = p.K / (64 * KB), g = lane >> 2, t = lane & 3;
  Ring at{0, 0, p.stages};
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    float sum[R / 2];
    int previous = -1;
    for (int k = 0; k < steps; ++k, at.next()) {
      if (lane < 2) mbar_wait(full + at.stage * 8, at.phase);
      __syncwarp();
      const uint64_t a = smem_descriptor(x_ring + at.stage * x_bytes, 16, 1024),
                     b = smem_descriptor(w_ring + at.stage * w_bytes, 16, 1024);
      wg_fence();
#pragma unroll
      for (int i = 0; i < 4 * KB; ++i)
        wgmma_ss(sum, a + (i >> 2) * p.x_rows * 8 + 2 * (i & 3), b + (i >> 2) * R * 8 + 2 * (i & 3),
                 i > 0 || k > 0);
      wg_commit();
      wg_wait<1>();
      if (previous >= 0) release(previous);
      previous = at.stage;
    }
    wg_wait<0>();
    pin(sum);
    release(previous);
    constexpr int kGroups = R / 8 / (kGated ? 2 : 1);  // of 8 outputs; the up rows lie behind the gate rows
#pragma unroll
    for (int j = 0; j < kGroups; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int m = warp * 16 + g + 8 * half, n = (tile * kGroups + j) * 8 + 2 * t;
        const float* at_gate = sum + 4 * j + 2 * half;
        if constexpr (kGated)
          store_gated_pair(p, m, n, at_gate, at_gate + 4 * kGroups);
        else if (kForm == Form::pair && tile >= p.second_tile)
          store_second_pair(p, m, n - p.second_tile * R, at_gate[0], at_gate[1]);
        else
          store_pair(p, m, n, at_gate[0], at_gate[1]);
      }
  }
}

CUtensorMap matrix_map(const Libraries& libraries, const void* data, int64_t rows, int64_t K, int box_rows,
                       int kb) {
  const auto width = static_cast<uint64_t>(K);
  return libraries.tensor_map(data, {64, static_cast<uint64_t>(rows), width / 64}, {width * 2, 128},
                              {64, static_cast<uint32_t>(box_rows), static_cast<uint32_t>(kb)});
}

/// Gate and up side by side: (64 columns, rows, gate or up, K / 64).
CUtensorMap gated_map(const Libraries& libraries, const void* data, int64_t rows, int64_t K, int box_rows,
                      int kb) {
  const auto width = static_cast<uint64_t>(K), half = static_cast<uint64_t>(rows) / 2;
  return libraries.tensor_map(data, {64, half, 2, width / 64}, {width * 2, half * width * 2, 128},
                              {64, static_cast<uint32_t>(box_rows) / 2, 2, static_cast<uint32_t>(kb)});
}

/// `second`: of a pair.
template <int R, int KB, Form kForm>
void run(const Libraries& libraries, const Product& p, const Product* second) {
  constexpr bool kGated = kForm == Form::gated;
  const int x_rows = p.M <= 8 ? 8 : p.M <= 16 ? 16 : p.M <= 32 ? 32 : 64;
  const int first_tiles = blocks_for(p.N, R), tiles = first_tiles + (second ? blocks_for(second->N, R) : 0);
  const int stage = KB * (R + x_rows) * 128;
  // One wave: a deep ring on every multiprocessor. More tiles: two blocks each, so that one's start and end
  // are covered by the other.
  const int per_multiprocessor = tiles <= libraries.multiprocessors() ? 1 : 2;
  const int room = (222 << 10) / per_multiprocessor - 4096;
  const int wanted = std::max(2 * static_cast<int>(p.K / (64 * KB)), kLeastRing / (KB * R * 128));
  const int stages = std::min({kMaxStages, room / stage, wanted});
  CHECK(stages >= 2 && stages * KB * R * 128 >= kLeastRing, "ring of {} stages", stages);
  const SkinnyArguments arguments{p.y,
                                  static_cast<const bf*>(p.bias),
                                  p.pitch,
                                  static_cast<int>(p.M),
                                  static_cast<int>(kGated ? p.N / 2 : p.N),
                                  static_cast<int>(p.K),
                                  x_rows,
                                  stages,
                                  tiles,
                                  p.out == DType::bf16,
                                  first_tiles,
                                  second ? static_cast<bf*>(second->y) : nullptr,
                                  second ? static_cast<int>(second->pitch) : 0};
  const int bytes = stages * stage + 1024;
  const CUtensorMap w =
      kGated ? gated_map(libraries, p.w, p.N, p.K, R, KB) : matrix_map(libraries, p.w, p.N, p.K, R, KB);
  allow_shared_memory(skinny_kernel<R, KB, kForm>, bytes);
  launch(libraries.lane(), skinny_kernel<R, KB, kForm>,
         std::min(tiles, libraries.multiprocessors() * per_multiprocessor), kThreads, bytes, w,
         second ? matrix_map(libraries, second->w, second->N, p.K, R, KB) : w,
         matrix_map(libraries, p.x, p.M, p.K, x_rows, KB), arguments);
}

/// The deepest box that divides K.
template <int R, int KB, Form kForm = Form::plain>
void run_deepest(const Libraries& libraries, const Product& p, const Product* second = nullptr) {
  if (p.K % (64 * KB) == 0) return run<R, KB, kForm>(libraries, p, second);
  if constexpr (KB > 1) run_deepest<R, KB / 2, kForm>(libraries, p, second);
}

}  // namespace

void multiply_skinny(const Libraries& libraries, const Product& p) {
  const auto one_wave = [&](int64_t rows) { return p.N <= rows * libraries.multiprocessors(); };
  if (one_wave(16)) return run_deepest<16, 4>(libraries, p);
  if (one_wave(24)) return run_deepest<24, 4>(libraries, p);
  if (one_wave(32)) return run_deepest<32, 4>(libraries, p);
  if (one_wave(48)) return run_deepest<48, 4>(libraries, p);
  if (one_wave(64)) return run_deepest<64, 4>(libraries, p);
  run_deepest<96, 2>(libraries, p);
}

void multiply_skinny_gated(const Libraries& libraries, const Product& p) {
  const auto one_wave = [&](int64_t rows) { return p.N <= rows * libraries.multiprocessors(); };
  if (one_wave(16)) return run_deepest<16, 4, Form::gated>(libraries, p);
  if (one_wave(32)) return run_deepest<32, 4, Form::gated>(libraries, p);
  if (one_wave(48)) return run_deepest<48, 4, Form::gated>(libraries, p);
  if (one_wave(64)) return run_deepest<64, 4, Form::gated>(libraries, p);
  run_deepest<96, 2, Form::gated>(libraries, p);
}

void multiply_skinny_pair(const Libraries& libraries, const Product& p, const Product& second) {
  const auto one_wave = [&](int64_t rows) {
    return (p.N + rows - 1) / rows + (second.N + rows - 1) / rows <= libraries.multiprocessors();
  };
  if (one_wave(16)) return run_deepest<16, 4, Form::pair>(libraries, p, &second);
  if (one_wave(32)) return run_deepest<32, 4, Form::pair>(libraries, p, &second);
  if (one_wave(48)) return run_deepest<48, 4, Form::pair>(libraries, p, &second);
  run_deepest<96, 2, Form::pair>(libraries, p, &second);
}

}  // namespace temper::cuda
