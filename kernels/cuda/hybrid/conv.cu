// The causal convolution of a gated delta net. A thread owns some neighbouring channels and goes down a run
// of rows, of which it keeps the last taps in registers: each row is read once, but for the first of a run.
// Runs depend on the number of rows alone, and no forward row on the run that it is in.

#include "kernels/cuda/fold.h"
#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/hybrid/teams.h"
#include "kernels/cuda/scratch/hybrid_rows.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int kThreads = 128;
constexpr int kStep = 4;  // rows whose loads are under way together

/// The rows of a layer's sequences before this batch, [tails, (taps-1) * channels]; without data: none.
template <class S>
struct Windows {
  S* data;
  const int32_t *tails, *lengths;
};

template <class S>
struct ConvRows {
  const S *x, *w;
  const int32_t* cu;
  Windows<S> windows;
  int64_t row;  // elements of a row of x
  int sequences, tokens, channels;
  int run;  // rows of a block, in channel_blocks blocks
  int channel_blocks;
  bool vector;
};

/// The sequence of each row of a run (-1: of none), and the first row of that.
template <int kMost>
struct RunPlaces {
  int sequence[kMost], first[kMost];

  TEMPER_DEVICE void find(const int32_t* cu, int sequences, int begin, int end) {
    for (int k = static_cast<int>(threadIdx.x); k < end - begin; k += kThreads)
      sequence[k] = -1, first[k] = begin + k;
    __syncthreads();
    for (int n = static_cast<int>(threadIdx.x); n < sequences; n += kThreads) {
      const int from = cu[n], to = min(cu[n + 1], end);
      for (int t = max(from, begin); t < to; ++t) sequence[t - begin] = n, first[t - begin] = from;
    }
    __syncthreads();
  }
};

/// A thread's N channels.
template <int N>
struct Channels {
  int first, count;
  bool whole;

  TEMPER_DEVICE Channels(int block, int channels, bool vector)
      : first((block * kThreads + static_cast<int>(threadIdx.x)) * N),
        count(channels - first),
        whole(vector && count > 0) {}
};

template <class S, int N, int K>
TEMPER_DEVICE void load_taps(float (&w)[N][K], const S* all, const Channels<N>& own) {
  RawGroup<S, N> raw[K];
#pragma unroll
  for (int g = 0; g < K; ++g)
    load_raw(raw[g], all + int64_t{own.first} * K + g * N, own.count * K - g * N, own.whole);
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < K; ++j) w[i][j] = cn::load(raw[(i * K + j) / N].at[(i * K + j) % N]);
}

/// The K-1 rows before row t of sequence n, which begins at `first`; zeros before the sequence's first.
template <class S, int N, int K>
TEMPER_DEVICE void load_history(float (&x)[K][N], const ConvRows<S>& call, int t, int first, int n,
                                const Channels<N>& own) {
  const Windows<S>& windows = call.windows;
  const bool paged = windows.data != nullptr && n >= 0;
  const int before = paged ? windows.lengths[n] - (call.cu[n + 1] - call.cu[n]) : 0;
  const S* window = paged ? windows.data + int64_t{windows.tails[n]} * (K - 1) * call.channels : nullptr;
  RawGroup<S, N> raw[K];
#pragma unroll
  for (int k = 0; k < K - 1; ++k) {
    const int place = t - first - (K - 1) + k;  // among the rows of the sequence in this batch
    const bool here = place >= 0, exists = here || place + before >= 0;
    const S* from =
        here ? call.x + (first + place) * call.row : window + int64_t{K - 1 + place} * call.channels;
    load_raw(raw[k], from + own.first, exists ? own.count : 0, exists && own.whole);
  }
#pragma unroll
  for (int k = 0; k < K - 1; ++k)
#pragma unroll
    for (int i = 0; i < N; ++i) x[k][i] = cn::load(raw[k].at[i]);
}

/// The sums of taps of the row x[K-1].
template <int N, int K>
TEMPER_DEVICE float tap_sum(const float (&w)[N][K], const float (&x)[K][N], int i) {
  float column[K];
#pragma unroll
  for (int j = 0; j < K; ++j) column[j] = x[j][i];
  return cn::tap_sum(w[i], column);
}

template <int N, int K>
TEMPER_DEVICE void forget_first(float (&x)[K][N]) {
#pragma unroll
  for (int k = 0; k < K - 1; ++k)
#pragma unroll
    for (int i = 0; i < N; ++i) x[k][i] = x[k + 1][i];
}

constexpr int kMostRun = 64;

/// Blocks (run, channels). With kOwns a run is a sequence, and its window becomes what is behind its rows.
/// Places, taps and pages are there before the previous kernel has finished.
template <class S, int K, bool kOwns>
__global__ void __launch_bounds__(kThreads) conv_kernel(S* y, const ConvRows<S> call) {
  constexpr int N = kGroup;
  launch_dependents();
  __shared__ RunPlaces<kMostRun> places;
  const int run = static_cast<int>(blockIdx.x) / call.channel_blocks;
  const Channels<N> own(static_cast<int>(blockIdx.x) % call.channel_blocks, call.channels, call.vector);
  const int begin = kOwns ? call.cu[run] : run * call.run,
            end = kOwns ? call.cu[run + 1] : min(begin + call.run, call.tokens);
  if constexpr (!kOwns) places.find(call.cu, call.sequences, begin, end);
  if (own.count <= 0 || begin >= end) return;
  float w[N][K], x[K][N];
  load_taps<S, N, K>(w, call.w, own);
  wait_for_previous_kernel();
  load_history<S, N, K>(x, call, begin, kOwns ? begin : places.first[0], kOwns ? run : places.sequence[0],
                        own);
  for (int base = begin; base < end; base += kStep) {
    RawGroup<S, N> raw[kStep];
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const bool exists = base + i < end;
      load_raw(raw[i], call.x + (base + i) * call.row + own.first, exists ? own.count : 0,
               exists && own.whole);
    }
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const int t = base + i;
      if (t >= end) break;
      if constexpr (!kOwns)
        if (t != begin && places.first[t - begin] == t)
          load_history<S, N, K>(x, call, t, t, places.sequence[t - begin], own);
      float out[N];
#pragma unroll
      for (int k = 0; k < N; ++k) x[K - 1][k] = cn::load(raw[i].at[k]);
#pragma unroll
      for (int k = 0; k < N; ++k) out[k] = cn::silu(tap_sum<N, K>(w, x, k));
      store_group(y + int64_t{t} * call.channels + own.first, out, own.count, own.whole);
      forget_first<N, K>(x);
    }
  }
  if constexpr (kOwns) {
    S* window = call.windows.data + int64_t{call.windows.tails[run]} * (K - 1) * call.channels + own.first;
#pragma unroll
    for (int k = 0; k < K - 1; ++k)
      store_group(window + int64_t{k} * call.channels, x[k], own.count, own.whole);
  }
}

/// Blocks (sequence, channels), after the rows of all: a thread reads its channels of the window before it
/// writes them.
template <class S, int K>
__global__ void __launch_bounds__(kThreads) window_kernel(const ConvRows<S> call) {
  constexpr int N = kGroup;
  begin_kernel();
  const int n = static_cast<int>(blockIdx.x) / call.channel_blocks;
  const Channels<N> own(static_cast<int>(blockIdx.x) % call.channel_blocks, call.channels, call.vector);
  const int begin = call.cu[n], end = call.cu[n + 1];
  if (own.count <= 0 || begin >= end) return;
  float x[K][N];
  load_history<S, N, K>(x, call, end, begin, n, own);
  S* window = call.windows.data + int64_t{call.windows.tails[n]} * (K - 1) * call.channels + own.first;
#pragma unroll
  for (int k = 0; k < K - 1; ++k)
    store_group(window + int64_t{k} * call.channels, x[k], own.count, own.whole);
}

// ---- backward

constexpr int kBackwardChannels = 4;

template <class S>
struct ConvBackward {
  S* dx;
  float* partials;  // of dw, [runs, channels * taps]
  const S* dy;
  ConvRows<S> rows;
};

/// What a thread knows of a run's rows, the last K of them: x, the gradients of their sums dc, and sums of
/// dw.
template <class S, int N, int K>
struct ConvGradient {
  float w[N][K], sums[N][K], x[K][N], dc[K][N];

  TEMPER_DEVICE void begin() {
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < K; ++j) sums[i][j] = dc[j][i] = 0.f;
  }
  TEMPER_DEVICE void begin_sequence() {
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int i = 0; i < N; ++i) x[k][i] = dc[k][i] = 0.f;
  }
  /// dc[K-1] of the row x[K-1].
  TEMPER_DEVICE void add_row(const RawGroup<S, N>& dy, const RawGroup<S, N>& row, bool counts) {
    forget_first<N, K>(x);
    forget_first<N, K>(dc);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      x[K - 1][i] = cn::load(row.at[i]);
      dc[K - 1][i] = __fmul_rn(cn::load(dy.at[i]), cn::silu_slope(tap_sum<N, K>(w, x, i)));
      if (counts)
#pragma unroll
        for (int j = 0; j < K; ++j) sums[i][j] = __fmaf_rn(dc[K - 1][i], x[j][i], sums[i][j]);
    }
  }
  TEMPER_DEVICE void add_missing_row() {
    forget_first<N, K>(dc);
#pragma unroll
    for (int i = 0; i < N; ++i) dc[K - 1][i] = 0.f;
  }
  /// The gradient of the row of dc[0].
  TEMPER_DEVICE void store_oldest(S* dx, const Channels<N>& own) const {
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float sum = 0.f;
#pragma unroll
      for (int j = 0; j < K; ++j) sum = __fmaf_rn(w[i][j], dc[K - 1 - j][i], sum);
      out[i] = sum;
    }
    store_group(dx, out, own.count, own.whole);
  }
};

/// Blocks (run, channels). dx of a row needs the K-1 rows behind it, which the run reads too, and counts for
/// dw only in their own.
template <class S, int K>
__global__ void __launch_bounds__(kThreads) conv_backward_kernel(const ConvBackward<S> call) {
  constexpr int N = kBackwardChannels;
  launch_dependents();
  __shared__ RunPlaces<kMostConvRun + kMostDeltaTaps> places;
  const ConvRows<S>& rows = call.rows;
  const int run = static_cast<int>(blockIdx.x) / rows.channel_blocks;
  const Channels<N> own(static_cast<int>(blockIdx.x) % rows.channel_blocks, rows.channels, rows.vector);
  const int begin = run * rows.run, end = min(begin + rows.run, rows.tokens),
            last = min(end + K - 1, rows.tokens);
  places.find(rows.cu, rows.sequences, begin, last);
  if (own.count <= 0) return;
  ConvGradient<S, N, K> g;
  load_taps<S, N, K>(g.w, rows.w, own);
  wait_for_previous_kernel();
  g.begin();
  int first = begin;                  // the first row of this run and of the sequence at hand
  const auto store_dx = [&](int t) {  // of the row K-1 before t
    const int row = t - (K - 1);
    if (row >= first && row < end) g.store_oldest(call.dx + row * rows.row + own.first, own);
  };
  const auto end_sequence = [&](int t) {
    for (int k = 0; k < K - 1; ++k) g.add_missing_row(), store_dx(t + k);
  };
  float history[K][N];
  load_history<S, N, K>(history, rows, begin, places.first[0], places.sequence[0], own);
#pragma unroll
  for (int k = 0; k < K - 1; ++k)
#pragma unroll
    for (int i = 0; i < N; ++i) g.x[k + 1][i] = history[k][i];
  bool ended = false;  // what comes behind the run is another sequence
  for (int base = begin; base < last && !ended; base += kStep) {
    RawGroup<S, N> x[kStep], dy[kStep];
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const bool exists = base + i < last;
      const int count = exists ? own.count : 0;
      load_raw(x[i], rows.x + (base + i) * rows.row + own.first, count, exists && own.whole);
      load_raw(dy[i], call.dy + int64_t{base + i} * rows.channels + own.first, count, exists && own.whole);
    }
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const int t = base + i;
      if (t >= last) break;
      if (t != begin && places.first[t - begin] == t) {
        end_sequence(t);
        ended = t >= end;
        if (ended) break;
        first = t;
        g.begin_sequence();
      }
      g.add_row(dy[i], x[i], t < end);
      store_dx(t);
    }
  }
  if (!ended) end_sequence(last);
  float* sums = call.partials + (int64_t{run} * rows.channels + own.first) * K;
#pragma unroll
  for (int j = 0; j < K; ++j) {
    float part[N];
#pragma unroll
    for (int i = 0; i < N; ++i) part[i] = g.sums[(j * N + i) / K][(j * N + i) % K];
    store_group(sums + j * N, part, own.count * K - j * N, own.whole);
  }
}

/// go(std::integral_constant<int, taps>{})
template <int K = 1, class Go>
void with_taps(int64_t taps, Go&& go) {
  if (taps == K)
    go(std::integral_constant<int, K>{});
  else if constexpr (K < kMostDeltaTaps)
    with_taps<K + 1>(taps, go);
}

template <class S>
ConvRows<S> conv_rows(const CTensor& x, const CTensor& w, const CTensor& cu_seqlens, int channels_of_block,
                      bool lies) {
  const auto channels = static_cast<int>(w.dim(0));
  return {data_of<S>(x),
          data_of<S>(w),
          cu_seqlens.as<int32_t>(),
          {},
          x.dim(1),
          static_cast<int>(cu_seqlens.dim(0) - 1),
          static_cast<int>(x.dim(0)),
          channels,
          0,
          blocks_for(channels, channels_of_block),
          lies && lies_in_groups({x, w}, {x.dim(1), channels})};
}

/// Rows of a block: as many as leave three blocks to a multiprocessor, a whole number of steps.
int run_of(int64_t tokens, int64_t channel_blocks) {
  const int64_t run = per_block_of(tokens * channel_blocks, 132 * 12, kStep);
  return static_cast<int>(std::min<int64_t>(run, kMostRun));
}

template <class S>
void convolve(Ctx& ctx, const Tensor& y, ConvRows<S> call, int64_t taps) {
  if (call.tokens == 0) return;
  call.run = run_of(call.tokens, call.channel_blocks);
  const bool paged = call.windows.data != nullptr, owns = paged && call.tokens <= call.sequences;
  const auto blocks = [&](int64_t runs) { return blocks_for(runs * call.channel_blocks, 1); };
  with_taps(taps, [&](auto k) {
    if (owns)
      return launch(ctx.lane, conv_kernel<S, k, true>, blocks(call.sequences), kThreads, 0, data_of<S>(y),
                    call);
    launch(ctx.lane, conv_kernel<S, k, false>, blocks(blocks_of(call.tokens, call.run)), kThreads, 0,
           data_of<S>(y), call);
    if (paged) launch(ctx.lane, window_kernel<S, k>, blocks(call.sequences), kThreads, 0, call);
  });
}

}  // namespace

void causal_conv_forward(Ctx& ctx, Tensor y, CTensor x, CTensor w, CTensor cu_seqlens) {
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    convolve(ctx, y, conv_rows<S>(x, w, cu_seqlens, kThreads * kGroup, lies_in_groups({y}, {})), w.dim(1));
  });
}

void causal_conv_paged(Ctx& ctx, Tensor y, DeltaPages pages, int64_t layer, CTensor x, CTensor w,
                       CTensor cu_seqlens) {
  const Tensor& all = pages.windows;
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    ConvRows<S> call = conv_rows<S>(x, w, cu_seqlens, kThreads * kGroup, lies_in_groups({y, all}, {}));
    if (w.dim(1) > 1)
      call.windows = {data_of<S>(all) + layer * all.dim(1) * all.dim(2), pages.tails.as<int32_t>(),
                      pages.lengths.as<int32_t>()};
    convolve(ctx, y, call, w.dim(1));
  });
}

void causal_conv_backward(Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor w,
                          CTensor cu_seqlens) {
  if (x.dim(0) == 0) return;
  const int64_t channels = w.dim(0), taps = w.dim(1);
  ArenaScope scope(ctx.scratch);
  const NormPartials partials = causal_conv_backward_scratch(ctx.scratch, x.dim(0), channels, taps);
  float* sums = partials.sums.as<float>();
  const int runs = static_cast<int>(partials.sums.dim(0));
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    ConvBackward<S> call{
        data_of<S>(dx), sums, data_of<S>(dy),
        conv_rows<S>(x, w, cu_seqlens, kThreads * kBackwardChannels, lies_in_groups({dx, dy}, {}))};
    call.rows.run = static_cast<int>(partials.per_block);
    with_taps(taps, [&](auto k) {
      launch(ctx.lane, conv_backward_kernel<S, k>, blocks_for(int64_t{runs} * call.rows.channel_blocks, 1),
             kThreads, 0, call);
    });
  });
  fold_partials(ctx, static_cast<int>(channels * taps), {dw.as<float>(), sums, runs});
}

}  // namespace temper::cuda
