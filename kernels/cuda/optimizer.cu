// AdamW, rounding of masters, sums of squares: streams of 16-byte words over flat memory.

#include <algorithm>

#include "kernels/adamw.h"
#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

constexpr int kThreads = 256;

/// Ranges that decay, ascending, none of them empty, as a kernel's parameter. At least nine: every launch
/// with a full list then gets at least one group of eight elements further.
constexpr int kMostRanges = 64;
struct DecayList {
  int count;
  FlatRange ranges[kMostRanges];

  /// The first range that ends after element i.
  TEMPER_DEVICE int first_behind(int64_t i) const {
    int low = 0, high = count;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (ranges[middle].end <= i)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

TEMPER_DEVICE float rounded_master(float master, float) { return master; }
/// Nearest, ties away from zero.
TEMPER_DEVICE __nv_bfloat16 rounded_master(float master, __nv_bfloat16) {
  return __ushort_as_bfloat16(static_cast<unsigned short>((__float_as_uint(master) + 0x8000u) >> 16));
}
template <class S, int N>
TEMPER_DEVICE void store_weights(S* p, const float (&master)[N], int count, bool whole) {
  RawGroup<S, N> raw;
#pragma unroll
  for (int i = 0; i < N; ++i) raw.at[i] = rounded_master(master[i], S{});
  store_raw(p, raw, count, whole);
}

/// 16 bits of no number: the low ones of a master, in a type that groups are read and written in.
using Bits16 = __nv_bfloat16;
TEMPER_DEVICE Bits16 low_bits(uint32_t x) {
  return __ushort_as_bfloat16(static_cast<unsigned short>(x & 0xffffu));
}
/// joined_master of src/core/dtype.h for a group of weights and remainders.
template <int N>
TEMPER_DEVICE void join_masters(float (&master)[N], const __nv_bfloat16* weight, const Bits16* remainder,
                                int count, bool whole) {
  RawGroup<__nv_bfloat16, N> high;
  RawGroup<Bits16, N> low;
  load_raw(high, weight, count, whole);
  load_raw(low, remainder, count, whole);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int below = static_cast<short>(__bfloat16_as_ushort(low.at[i]));
    const uint32_t above = static_cast<uint32_t>(__bfloat16_as_ushort(high.at[i])) << 16;
    master[i] = __uint_as_float(above + static_cast<uint32_t>(below));
  }
}
template <int N>
TEMPER_DEVICE void store_remainders(Bits16* p, const float (&master)[N], int count, bool whole) {
  RawGroup<Bits16, N> raw;
#pragma unroll
  for (int i = 0; i < N; ++i) raw.at[i] = low_bits(__float_as_uint(master[i]));
  store_raw(p, raw, count, whole);
}

/// The random bits of a group, from element 4 * n4 of the model on.
template <int N>
TEMPER_DEVICE void draw_words(uint32_t (&words)[N], uint64_t seed, uint32_t update, uint64_t n4) {
  static_assert(kMomentGroup == 4 && N % 4 == 0);
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const uint4 drawn = canonical::moment_words(seed, update, n4 + i / 4);
    words[i] = drawn.x, words[i + 1] = drawn.y, words[i + 2] = drawn.z, words[i + 3] = drawn.w;
  }
}
/// Rounded by the 16 bits of each word from bit kShift on.
template <int kShift, int N>
TEMPER_DEVICE void store_moments(__nv_bfloat16* p, const float (&moment)[N], const uint32_t (&words)[N],
                                 int count, bool whole) {
  RawGroup<__nv_bfloat16, N> raw;
#pragma unroll
  for (int i = 0; i < N; ++i)
    raw.at[i] = low_bits((__float_as_uint(moment[i]) + ((words[i] >> kShift) & 0xffffu)) >> 16);
  store_raw(p, raw, count, whole);
}

/// S: weights. P: masters; Bits16: their remainders. M: moments.
template <class S, class P, class M>
struct AdamwCall {
  S* weight;  // null: the master is the weight
  P* master;
  M *m, *v;
  const float* grad;
  int64_t begin, end;  // elements of this launch; begin is a multiple of eight
  bool aligned;        // all pointers, to 16 bytes
  // What rounds bf16 moments.
  uint64_t seed;
  uint32_t update;
  int64_t first_element;
};

/// A thread has N elements. Eight are two 16-byte words of fp32, between which lie those of its neighbours:
/// host memory, which no cache holds together, wants whole lines of a warp at once, N = 4.
template <class S, class P, class M, int N>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const AdamwCall<S, P, M> call, const AdamwFactors<float> k, const DecayList decays) {
  constexpr bool kRemainder = !std::is_same_v<P, float>, kDraws = !std::is_same_v<M, float>;
  begin_kernel();
  const int64_t first = call.begin + (blockIdx.x * int64_t{kThreads} + threadIdx.x) * N;
  if (first >= call.end) return;
  const int n = static_cast<int>(min(call.end - first, int64_t{N}));
  const bool whole = call.aligned && n == N;
  float grad[N], m[N], v[N], master[N];
  load_group(grad, call.grad + first, n, whole);
  load_group(m, call.m + first, n, whole);
  load_group(v, call.v + first, n, whole);
  if constexpr (kRemainder)
    join_masters(master, call.weight + first, call.master + first, n, whole);
  else
    load_group(master, call.master + first, n, whole);
  int range = decays.first_behind(first);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    while (range < decays.count && decays.ranges[range].end <= first + i) ++range;
    const bool decays_here = range < decays.count && decays.ranges[range].begin <= first + i;
    const float g = __fmul_rn(grad[i], k.grad_scale);
    m[i] = __fadd_rn(__fmul_rn(k.beta1, m[i]), __fmul_rn(k.one_minus_beta1, g));
    v[i] = __fadd_rn(__fmul_rn(k.beta2, v[i]), __fmul_rn(k.one_minus_beta2, __fmul_rn(g, g)));
    const float root = __fadd_rn(__fsqrt_rn(__fmul_rn(v[i], k.v_scale)), k.eps);
    master[i] = __fsub_rn(__fmul_rn(master[i], decays_here ? k.decay : 1.f),
                          __fmul_rn(k.step_size, __fdiv_rn(m[i], root)));
  }
  if constexpr (kDraws) {
    uint32_t words[N];
    draw_words(words, call.seed, call.update,
               static_cast<uint64_t>(call.first_element + first) / kMomentGroup);
    store_moments<0>(call.m + first, m, words, n, whole);
    store_moments<16>(call.v + first, v, words, n, whole);
  } else {
    store_group(call.m + first, m, n, whole);
    store_group(call.v + first, v, n, whole);
  }
  if constexpr (kRemainder)
    store_remainders(call.master + first, master, n, whole);
  else
    store_group(call.master + first, master, n, whole);
  if (call.weight != nullptr) store_weights(call.weight + first, master, n, whole);
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    round_kernel(S* weight, const float* master, int64_t count, bool aligned) {
  begin_kernel();
  const int64_t first = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * kGroup;
  if (first >= count) return;
  const int n = static_cast<int>(min(count - first, int64_t{kGroup}));
  const bool whole = aligned && n == kGroup;
  float p[kGroup];
  load_group(p, master + first, n, whole);
  store_weights(weight + first, p, n, whole);
}

bool aligned(std::initializer_list<const void*> pointers) {
  return std::ranges::all_of(pointers,
                             [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; });
}

/// The ranges of elements from `begin` on, and in `end` how far the list reaches.
DecayList list_from(std::span<const FlatRange> decays, int64_t begin, int64_t& end) {
  DecayList list{};
  for (const FlatRange& range : decays) {
    if (range.end <= begin || range.size() == 0) continue;
    if (list.count == kMostRanges) {
      end = list.ranges[kMostRanges - 1].end / kGroup * kGroup;
      break;
    }
    list.ranges[list.count++] = range;
  }
  return list;
}

constexpr int kFarGroup = 4;
bool in_host_memory(const void* p) {
  cudaPointerAttributes attributes{};
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, p));
  return attributes.type == cudaMemoryTypeHost;
}

// ---- sum of squares

constexpr int kInFlight = 4;                     // groups of a thread
constexpr int64_t kTurn = kThreads * kInFlight;  // groups of a block
constexpr int64_t kMostSums = 132 * 8;           // blocks: a constant, so that sums do not depend on the chip

/// Lanes by butterfly, then the warps ascending; the first thread's answer counts.
TEMPER_DEVICE double block_sum(double x) {
  __shared__ double warps[kThreads / 32];
#pragma unroll
  for (int w = 16; w > 0; w /= 2) x = __dadd_rn(x, __shfl_xor_sync(~0u, x, w));
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = warps[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) sum = __dadd_rn(sum, warps[w]);
  return sum;
}

/// Block b has the groups [b per_block, ..); its thread i takes every 256th, ascending.
template <class S>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(double* sums, const S* x, int64_t count, int64_t per_block, bool aligned) {
  begin_kernel();
  const int64_t begin = blockIdx.x * per_block, groups = (count + kGroup - 1) / kGroup,
                end = min(begin + per_block, groups);
  double sum = 0;
  for (int64_t base = begin + threadIdx.x; base < end; base += kTurn) {
    RawGroup<S> raw[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const int64_t group = base + j * kThreads, left = group < end ? count - group * kGroup : 0;
      const int n = static_cast<int>(min(left, int64_t{kGroup}));
      load_raw(raw[j], x + group * kGroup, n, aligned && n == kGroup);
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j)
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const double value = canonical::load(raw[j].at[i]);
        sum = __fma_rn(value, value, sum);
      }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) add_squares_kernel(double* to, const double* sums, int count) {
  begin_kernel();
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum = __dadd_rn(sum, sums[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) *to = __dadd_rn(*to, sum);
}

}  // namespace

void adamw_step(Ctx& ctx, Tensor weight, Tensor master, Tensor m, Tensor v, CTensor grad,
                std::span<const FlatRange> decays, AdamwStep step) {
  const bool far = in_host_memory(m.data);
  const auto run = [&]<class S, class P, class M>(S, P, M) {
    const bool own = weight.data != master.data;
    AdamwCall<S, P, M> call{.weight = own ? data_of<S>(weight) : nullptr,
                            .master = data_of<P>(master),
                            .m = data_of<M>(m),
                            .v = data_of<M>(v),
                            .grad = grad.as<float>(),
                            .begin = 0,
                            .end = 0,
                            .aligned = aligned({weight.data, master.data, m.data, v.data, grad.data}),
                            .seed = step.seed,
                            .update = static_cast<uint32_t>(step.count),
                            .first_element = step.first_element};
    for (; call.begin < weight.size(); call.begin = call.end) {
      call.end = weight.size();
      const DecayList list = list_from(decays, call.begin, call.end);
      launch(ctx.lane, far ? adamw_kernel<S, P, M, kFarGroup> : adamw_kernel<S, P, M, kGroup>,
             blocks_for(call.end - call.begin, int64_t{kThreads} * (far ? kFarGroup : kGroup)), kThreads, 0,
             call, AdamwFactors<float>(step), list);
    }
  };
  const auto with_moments = [&](auto s, auto p) {
    if (m.dtype == DType::bf16)
      run(s, p, __nv_bfloat16{});
    else
      run(s, p, float{});
  };
  dispatch_gpu_storage(weight.dtype, [&]<class S>(S s) {
    if constexpr (std::is_same_v<S, __nv_bfloat16>)
      if (master.dtype == DType::u16) return with_moments(s, Bits16{});
    with_moments(s, float{});
  });
  ctx.lane.order();  // the next kernel may read the new weights before its wait
}

void round_master(Ctx& ctx, Tensor weight, CTensor master) {
  if (weight.data == master.data) return;
  dispatch_gpu_storage(weight.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, round_kernel<S>, blocks_for(weight.size(), int64_t{kThreads} * kGroup), kThreads, 0,
           data_of<S>(weight), master.as<float>(), weight.size(), aligned({weight.data, master.data}));
  });
  ctx.lane.order();  // as above
}

void sum_of_squares(Ctx& ctx, Tensor sum, CTensor x) {
  if (x.size() == 0) return;
  const int64_t groups = (x.size() + kGroup - 1) / kGroup, turns = (groups + kTurn - 1) / kTurn;
  const int64_t per_block = (turns + kMostSums - 1) / kMostSums * kTurn;
  const int blocks = blocks_for(groups, per_block);
  ArenaScope scope(ctx.scratch);
  auto* sums = static_cast<double*>(ctx.scratch.allocate(blocks * int64_t{sizeof(double)}));
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, squares_kernel<S>, blocks, kThreads, 0, sums, data_of<S>(x), x.size(), per_block,
           aligned({x.data}));
  });
  launch(ctx.lane, add_squares_kernel, 1, kThreads, 0, sum.as<double>(), sums, blocks);
}

}  // namespace temper::cuda
