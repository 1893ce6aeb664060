#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {

void embedding_forward(Ctx& ctx, Tensor y, CTensor tokens, CTensor w, VocabularyShare share) {
  const int32_t* id = tokens.as<int32_t>();
  check_indices(id, tokens.dim(0), share.ids, "token");
  dispatch_storage(w.dtype, [&](auto s) {
    using S = decltype(s);
    const int64_t width = w.dim(1);
    S* to = y.as<S>();
    const S* from = w.as<S>();
    parallel_ranges(ctx.threads, tokens.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t row = id[t] - share.first;
        if (row >= 0 && row < w.dim(0))
          std::copy_n(from + row * width, width, to + t * width);
        else
          std::fill_n(to + t * width, width, store<S>(Accumulate<S>(-0.0)));
      }
    });
  });
}

void embedding_backward(Ctx& ctx, Tensor dw, CTensor dy, CTensor tokens, int64_t skip_id,
                        VocabularyShare share) {
  const int32_t* id = tokens.as<int32_t>();
  check_indices(id, tokens.dim(0), share.ids, "token");
  dispatch_storage(dy.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = dw.dim(1);
    A* to = dw.as<A>();
    const S* from = dy.as<S>();
    // Threads share columns, not rows: two equal tokens then never meet, and each sum ascends in t.
    parallel_ranges(ctx.threads, width, 128, [&](int64_t begin, int64_t end) {
      for (int64_t t = 0; t < tokens.dim(0); ++t) {
        const int64_t row = id[t] - share.first;
        if (id[t] == skip_id || row < 0 || row >= dw.dim(0)) continue;
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) to[row * width + i] += load(from[t * width + i]);
      }
    });
  });
}

}  // namespace temper::cpu
