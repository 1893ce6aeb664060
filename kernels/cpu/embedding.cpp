#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {

void embedding_forward(Ctx& ctx, Tensor y, CTensor tokens, CTensor w) {
  const int32_t* id = tokens.as<int32_t>();
  check_indices(id, tokens.dim(0), w.dim(0), "token");
  const int64_t bytes = w.dim(1) * dtype_size(w.dtype);
  char* to = static_cast<char*>(y.raw());
  const char* from = static_cast<const char*>(w.data);
  parallel_ranges(ctx.threads, tokens.dim(0), row_grain(w.dim(1)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      std::memcpy(to + t * bytes, from + id[t] * bytes, static_cast<size_t>(bytes));
  });
}

void embedding_backward(Ctx& ctx, Tensor dw, CTensor dy, CTensor tokens, int64_t skip_id) {
  const int32_t* id = tokens.as<int32_t>();
  check_indices(id, tokens.dim(0), dw.dim(0), "token");
  dispatch_storage(dy.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = dw.dim(1);
    A* to = dw.as<A>();
    const S* from = dy.as<S>();
    // Threads share columns, not rows: two equal tokens then never meet, and each sum ascends in t.
    parallel_ranges(ctx.threads, width, 128, [&](int64_t begin, int64_t end) {
      for (int64_t t = 0; t < tokens.dim(0); ++t) {
        if (id[t] == skip_id) continue;
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) to[id[t] * width + i] += load(from[t * width + i]);
      }
    });
  });
}

}  // namespace temper::cpu
