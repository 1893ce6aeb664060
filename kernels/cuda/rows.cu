// Embedding lookup, row selection, residual sum: memory-bound, 16 bytes a thread where rows allow it.

#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

constexpr int kThreads = 256;

/// y[t,:] = w[tokens[t] - first,:]; of ids outside of `rows`: words of -0 in the storage type.
template <class W>
__global__ void lookup_kernel(W* y, const W* w, const int32_t* tokens, VocabularyShare share, int64_t rows,
                              int64_t words, W negative_zeros) {
  begin_kernel();
  const int32_t id = tokens[blockIdx.x];
  if (id < 0 || id >= share.ids) __trap();
  const int64_t from = id - share.first;
  const bool own = from >= 0 && from < rows;
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x)
    y[blockIdx.x * words + i] = own ? w[from * words + i] : negative_zeros;
}

/// y[i,:] = x[index[i],:]; rows of `words` units of W.
template <class W>
__global__ void copy_rows_kernel(W* y, const W* x, const int32_t* index, int64_t limit, int64_t words) {
  begin_kernel();
  const int64_t from = index[blockIdx.x];
  if (from < 0 || from >= limit) __trap();  // callers check ids on the host; this keeps reads inside
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x) y[blockIdx.x * words + i] = x[from * words + i];
}

/// y[index[i],:] = x[i,:]
template <class W>
__global__ void put_rows_kernel(W* y, const W* x, const int32_t* index, int64_t limit, int64_t words) {
  begin_kernel();
  const int64_t to = index[blockIdx.x];
  if (to < 0 || to >= limit) __trap();
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x) y[to * words + i] = x[blockIdx.x * words + i];
}

/// go(W{}, units of W in a row) for the widest W.
template <class Go>
void with_words(const CTensor& x, Go&& go) {
  const int64_t bytes = x.dim(1) * dtype_size(x.dtype);
  if (bytes % 16 == 0)
    go(uint4{}, bytes / 16);
  else
    go(uint16_t{}, bytes / 2);
}

void copy_rows(Ctx& ctx, Tensor y, CTensor x, CTensor index) {
  with_words(x, [&](auto word, int64_t words) {
    using W = decltype(word);
    launch(ctx.lane, copy_rows_kernel<W>, static_cast<unsigned>(index.dim(0)), kThreads, 0, data_of<W>(y),
           data_of<W>(x), index.as<int32_t>(), x.dim(0), words);
  });
}

template <class S>
__global__ void add_kernel(S* y, const S* a, const S* b, int64_t count) {
  begin_kernel();
  const int64_t first = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * kGroup;
  if (first >= count) return;
  const bool whole = first + kGroup <= count;
  const int n = whole ? kGroup : static_cast<int>(count - first);
  float left[kGroup], right[kGroup];
  load_group(left, a + first, n, whole);
  load_group(right, b + first, n, whole);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) left[i] = __fadd_rn(left[i], right[i]);
  store_group(y + first, left, n, whole);
}

/// y[i] = ((x[0, i] + x[1, i]) + ...), one rounding.
template <class S, class P>
__global__ void sum_in_order_kernel(S* y, const P* x, int64_t parts, int64_t count) {
  begin_kernel();
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  float sum = canonical::load(x[i]);
  for (int64_t r = 1; r < parts; ++r) sum = __fadd_rn(sum, canonical::load(x[r * count + i]));
  y[i] = canonical::store<S>(sum);
}

template <class S>
__global__ void widen_kernel(float* y, const S* x, int64_t count) {
  begin_kernel();
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i < count) y[i] = canonical::load(x[i]);
}

}  // namespace

void gather_rows(Ctx& ctx, Tensor y, CTensor x, CTensor index) { copy_rows(ctx, y, x, index); }

void embedding_forward(Ctx& ctx, Tensor y, CTensor tokens, CTensor w, VocabularyShare share) {
  if (w.dim(0) == share.ids) return copy_rows(ctx, y, w, tokens);
  const uint32_t pair = w.dtype == DType::bf16 ? 0x80008000u : 0x80000000u;
  const auto look_up = [&](auto negative_zeros, int64_t words) {
    using W = decltype(negative_zeros);
    launch(ctx.lane, lookup_kernel<W>, static_cast<unsigned>(tokens.dim(0)), kThreads, 0, data_of<W>(y),
           data_of<W>(w), tokens.as<int32_t>(), share, w.dim(0), words, negative_zeros);
  };
  const int64_t bytes = w.dim(1) * dtype_size(w.dtype);
  if (bytes % 16 == 0)
    look_up(uint4{pair, pair, pair, pair}, bytes / 16);
  else if (bytes % 4 == 0)
    look_up(pair, bytes / 4);
  else
    look_up(uint16_t{0x8000}, bytes / 2);
}

void scatter_rows(Ctx& ctx, Tensor y, CTensor x, CTensor index) {
  device::fill(ctx.lane, y.raw(), 0, y.bytes());
  with_words(x, [&](auto word, int64_t words) {
    using W = decltype(word);
    launch(ctx.lane, put_rows_kernel<W>, static_cast<unsigned>(index.dim(0)), kThreads, 0, data_of<W>(y),
           data_of<W>(x), index.as<int32_t>(), y.dim(0), words);
  });
}

void add(Ctx& ctx, Tensor y, CTensor a, CTensor b) {
  dispatch_gpu_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, add_kernel<S>, blocks_for(y.size(), int64_t{kThreads} * kGroup), kThreads, 0,
           data_of<S>(y), data_of<S>(a), data_of<S>(b), y.size());
  });
}

void widen(Ctx& ctx, Tensor y, CTensor x) {
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    launch(ctx.lane, widen_kernel<decltype(s)>, blocks_for(y.size(), kThreads), kThreads, 0,
           data_of<float>(y), data_of<decltype(s)>(x), y.size());
  });
}

void sum_in_order(Ctx& ctx, Tensor y, CTensor parts) {
  dispatch_gpu_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    const auto add_up = [&](const auto* from) {
      using P = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
      launch(ctx.lane, sum_in_order_kernel<S, P>, blocks_for(y.size(), kThreads), kThreads, 0, data_of<S>(y),
             from, parts.dim(0), y.size());
    };
    if (parts.dtype == y.dtype)
      add_up(data_of<S>(parts));
    else
      add_up(data_of<float>(parts));
  });
}

}  // namespace temper::cuda
