#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {

void gather_rows(Ctx& ctx, Tensor y, CTensor x, CTensor index) {
  const int64_t width = x.dim(1), bytes = width * dtype_size(x.dtype);
  const int32_t* at = index.as<int32_t>();
  if (!ctx.threads.count_only) check_indices(at, index.dim(0), x.dim(0), "row");
  char* to = static_cast<char*>(y.raw());
  const char* from = static_cast<const char*>(x.data);
  parallel_ranges(ctx.threads, index.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(to + i * bytes, from + at[i] * bytes, static_cast<size_t>(bytes));
  });
}

/// One piece of work: of two rows with the same index the later one stays.
void scatter_rows(Ctx& ctx, Tensor y, CTensor x, CTensor index) {
  const int64_t bytes = y.dim(1) * dtype_size(y.dtype);
  const int32_t* at = index.as<int32_t>();
  check_indices(at, index.dim(0), y.dim(0), "row");
  char* to = static_cast<char*>(y.raw());
  const char* from = static_cast<const char*>(x.data);
  parallel_for(ctx.threads, 1, [&](int64_t) {
    std::memset(to, 0, static_cast<size_t>(y.bytes()));
    for (int64_t i = 0; i < index.dim(0); ++i)
      std::memcpy(to + at[i] * bytes, from + i * bytes, static_cast<size_t>(bytes));
  });
}

void copy_columns(Ctx& ctx, Tensor to, int64_t to_column, CTensor from, int64_t from_column,
                  int64_t columns) {
  const int64_t item = dtype_size(to.dtype), to_pitch = to.dim(1) * item, from_pitch = from.dim(1) * item;
  char* const y = static_cast<char*>(to.raw()) + to_column * item;
  const char* const x = static_cast<const char*>(from.data) + from_column * item;
  parallel_ranges(ctx.threads, to.dim(0), row_grain(columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(y + i * to_pitch, x + i * from_pitch, static_cast<size_t>(columns * item));
  });
}

void join_columns(Ctx& ctx, Tensor y, CTensor parts, CTensor own, int64_t own_part) {
  const int64_t n = own.dim(0), bytes = own.dim(1) * dtype_size(own.dtype), count = y.dim(1) / own.dim(1);
  char* const to = static_cast<char*>(y.raw());
  const char *const all = static_cast<const char*>(parts.data), *const mine =
                                                                    static_cast<const char*>(own.data);
  parallel_ranges(ctx.threads, n, row_grain(y.dim(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t r = 0; r < count; ++r)
        std::memcpy(to + (i * count + r) * bytes, (r == own_part ? mine : all + r * n * bytes) + i * bytes,
                    static_cast<size_t>(bytes));
  });
}

}  // namespace temper::cpu
