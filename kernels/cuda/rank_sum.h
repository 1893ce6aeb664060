#pragma once
// Sums over ranks (ops/peers/peer_exchange.h) by threads of a kernel: what the kernels of large pieces
// (rank_sum.cu) and of small ones (small_exchange.cu) share.

#include "kernels/cuda/launch.h"

namespace temper::cuda {

/// What parts of the ranks, in storage P, are added up to, in storage S. Rank `rank`'s part is `own`.
template <class S, class P>
struct RankAdder {
  S* to;
  const P* own;
  int64_t count;  // elements of a part
  int rank, ranks;
  bool onto;    // what `to` has before comes to it
  bool groups;  // `to` and `own` lie as groups of elements need it

  __host__ __device__ int64_t bytes() const { return count * static_cast<int64_t>(sizeof(P)); }
  TEMPER_DEVICE RankAdder piece(int64_t begin, int64_t elements) const {
    return {to + begin, own + begin, elements, rank, ranks, onto, groups};
  }
  /// Sums of a group that begins with element `at`; n of it exist.
  template <int N>
  TEMPER_DEVICE void write(float (&sum)[N], int64_t at, int n, bool whole) const {
    if (onto) {
      float before[N];
      load_group<S, N>(before, to + at, n, whole);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = __fadd_rn(before[i], sum[i]);
    }
    store_group<S, N>(to + at, sum, n, whole);
  }
};

/// The part of rank r, after those of the ranks before it.
template <int N>
TEMPER_DEVICE void add_part(float (&sum)[N], const float (&part)[N], int r) {
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] = r == 0 ? part[i] : __fadd_rn(sum[i], part[i]);
}

/// The share of block `block` of `blocks`, of kThreads each: groups of 16 bytes, as many in a row as it has
/// threads. Several at once for a thread, so as not to wait for memory once for each. part_of(r): where the
/// part of another rank lies, aligned for groups.
template <int kThreads, class S, class P, class PartOf>
TEMPER_DEVICE void add_groups(const RankAdder<S, P>& sum, int block, int blocks, PartOf&& part_of) {
  constexpr int N = 16 / sizeof(P), kAtOnce = 16 / N;
  const int64_t stride = int64_t{blocks} * kThreads * N;
  for (int64_t first = (int64_t{block} * kThreads + threadIdx.x) * N; first < sum.count;
       first += kAtOnce * stride) {
    const auto left = [&](int k) {
      return static_cast<int>(max(int64_t{0}, min(int64_t{N}, sum.count - first - k * stride)));
    };
    float total[kAtOnce][N];
    for (int r = 0; r < sum.ranks; ++r) {
      const bool own = r == sum.rank;
      const P* const from = own ? sum.own : part_of(r);
      float part[kAtOnce][N];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        load_group<P, N>(part[k], from + first + k * stride, left(k), left(k) == N && (!own || sum.groups));
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) add_part(total[k], part[k], r);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      sum.write(total[k], first + k * stride, left(k), left(k) == N && sum.groups);
  }
}

/// f(the adder of it).
template <class F>
void dispatch_rank_sum(const RankSum& sum, int ranks, F&& f) {
  const auto bits = reinterpret_cast<uintptr_t>(sum.to.raw()) | reinterpret_cast<uintptr_t>(sum.own.data);
  dispatch_gpu_storage(sum.to.dtype, [&](auto s) {
    using S = decltype(s);
    const auto go = [&]<class P>(P) {
      f(RankAdder<S, P>{data_of<S>(sum.to), data_of<P>(sum.own), sum.own.size(), sum.rank, ranks,
                        sum.write == GradWrite::add, bits % 16 == 0});
    };
    if (sum.own.dtype == sum.to.dtype)
      go(S{});
    else
      go(float{});
  });
}

}  // namespace temper::cuda
