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

/// y[i] = ((x[0, i] + x[1, i]) + ...), one rounding; `own` in place of x[own_part, :]; `onto`: what y has
/// before comes to it. Four elements a thread where `fours` says that all lie for it.
template <class S, class P>
__global__ void sum_in_order_kernel(S* y, const P* x, const P* own, int64_t own_part, int64_t parts,
                                    int64_t count, bool onto, bool fours) {
  constexpr int kElements = 4;
  begin_kernel();
  const int64_t first = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * kElements;
  if (first >= count) return;
  const int n = static_cast<int>(min(int64_t{kElements}, count - first));
  const bool whole = fours && n == kElements;
  float sum[kElements], part[kElements];
  for (int64_t r = 0; r < parts; ++r) {
    load_group<P, kElements>(r == 0 ? sum : part, (r == own_part ? own : x + r * count) + first, n, whole);
#pragma unroll
    for (int i = 0; r > 0 && i < kElements; ++i) sum[i] = __fadd_rn(sum[i], part[i]);
  }
  if (onto) {
    load_group<S, kElements>(part, y + first, n, whole);
#pragma unroll
    for (int i = 0; i < kElements; ++i) sum[i] = __fadd_rn(part[i], sum[i]);
  }
  store_group<S, kElements>(y + first, sum, n, whole);
}

/// Words of W: columns of rows, `*_pitch` words apart. Threads of a block read before they write.
constexpr int kWordsOfThread = 4;
template <class W>
__global__ void copy_columns_kernel(W* to, int64_t to_pitch, const W* from, int64_t from_pitch,
                                    uint32_t columns, uint32_t count) {
  begin_kernel();
  const uint32_t first = blockIdx.x * uint32_t{kThreads * kWordsOfThread} + threadIdx.x;
  W words[kWordsOfThread];
#pragma unroll
  for (int k = 0; k < kWordsOfThread; ++k)
    if (const uint32_t i = first + k * kThreads; i < count)
      words[k] = from[i / columns * from_pitch + i % columns];
#pragma unroll
  for (int k = 0; k < kWordsOfThread; ++k)
    if (const uint32_t i = first + k * kThreads; i < count)
      to[i / columns * to_pitch + i % columns] = words[k];
}

/// Words of W: rows of y are so many parts of `width`, each from a block of `block` words.
template <class W>
__global__ void join_columns_kernel(W* y, const W* parts, const W* own, uint32_t own_part, uint32_t num_parts,
                                    uint32_t width, uint32_t block, uint32_t count) {
  begin_kernel();
  const uint32_t first = blockIdx.x * uint32_t{kThreads * kWordsOfThread} + threadIdx.x;
  W words[kWordsOfThread];
#pragma unroll
  for (int k = 0; k < kWordsOfThread; ++k)
    if (const uint32_t i = first + k * kThreads; i < count) {
      const uint32_t piece = i / width, row = piece / num_parts, part = piece % num_parts;
      words[k] =
          (part == own_part ? own : parts + static_cast<size_t>(part) * block)[row * width + i % width];
    }
#pragma unroll
  for (int k = 0; k < kWordsOfThread; ++k)
    if (const uint32_t i = first + k * kThreads; i < count) y[i] = words[k];
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

void sum_in_order(Ctx& ctx, Tensor y, CTensor parts, CTensor own, int64_t own_part, GradWrite write) {
  const int64_t count = y.size();
  const auto lies = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  const bool fours = count % 4 == 0 && lies(y.data) && lies(parts.data) && lies(own.data);
  dispatch_gpu_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    const auto add_up = [&]<class P>(P) {
      launch(ctx.lane, sum_in_order_kernel<S, P>, blocks_for(count, int64_t{kThreads} * 4), kThreads, 0,
             data_of<S>(y), data_of<P>(parts), data_of<P>(own), own_part, parts.dim(0), count,
             write == GradWrite::add, fours);
    };
    if (parts.dtype == y.dtype)
      add_up(S{});
    else
      add_up(float{});
  });
}

void copy_columns(Ctx& ctx, Tensor to, int64_t to_column, CTensor from, int64_t from_column,
                  int64_t columns) {
  const int64_t item = dtype_size(to.dtype), to_pitch = to.dim(1) * item, from_pitch = from.dim(1) * item;
  const uintptr_t y = reinterpret_cast<uintptr_t>(to.raw()) + static_cast<uintptr_t>(to_column * item),
                  x = reinterpret_cast<uintptr_t>(from.data) + static_cast<uintptr_t>(from_column * item);
  const auto bits = static_cast<uintptr_t>(to_pitch | from_pitch | columns * item) | x | y;
  const auto go = [&]<class W>(W) {
    constexpr int64_t kBytes = sizeof(W);
    const int64_t words = columns * item / kBytes, count = words * to.dim(0);
    CHECK(count < int64_t{1} << 31, "{} words of columns at once", count);
    launch(ctx.lane, copy_columns_kernel<W>, blocks_for(count, kThreads * kWordsOfThread), kThreads, 0,
           reinterpret_cast<W*>(y), to_pitch / kBytes, reinterpret_cast<const W*>(x), from_pitch / kBytes,
           static_cast<uint32_t>(words), static_cast<uint32_t>(count));
  };
  if (bits % 16 == 0)
    go(uint4{});
  else
    go(uint16_t{});
}

void join_columns(Ctx& ctx, Tensor y, CTensor parts, CTensor own, int64_t own_part) {
  const int64_t item = dtype_size(y.dtype), width = own.dim(1) * item;
  const auto bits = static_cast<uintptr_t>(width) | reinterpret_cast<uintptr_t>(y.raw()) |
                    reinterpret_cast<uintptr_t>(parts.data) | reinterpret_cast<uintptr_t>(own.data);
  const auto go = [&]<class W>(W) {
    constexpr int64_t kBytes = sizeof(W);
    const int64_t words = width / kBytes, block = words * own.dim(0), num_parts = y.dim(1) / own.dim(1),
                  count = block * num_parts;
    CHECK(count < int64_t{1} << 31, "{} words of columns at once", count);
    launch(ctx.lane, join_columns_kernel<W>, blocks_for(count, kThreads * kWordsOfThread), kThreads, 0,
           static_cast<W*>(y.raw()), static_cast<const W*>(parts.data), static_cast<const W*>(own.data),
           static_cast<uint32_t>(own_part), static_cast<uint32_t>(num_parts), static_cast<uint32_t>(words),
           static_cast<uint32_t>(block), static_cast<uint32_t>(count));
  };
  if (bits % 16 == 0)
    go(uint4{});
  else
    go(uint16_t{});
}

}  // namespace temper::cuda
