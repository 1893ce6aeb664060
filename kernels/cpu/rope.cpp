#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rotate.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {
namespace {

template <int kSign>
void rotate(Ctx& ctx, Tensor qkv, CTensor positions, CTensor cosine, CTensor sine, AttentionShape shape) {
  const int32_t* position = positions.as<int32_t>();
  check_indices(position, positions.dim(0), cosine.dim(0), "position");
  dispatch_storage(qkv.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = shape.qkv_width(), heads = shape.q_heads + shape.kv_heads,
                  half = shape.head_dim / 2;
    S* row = qkv.as<S>();
    const A *cosines = cosine.as<A>(), *sines = sine.as<A>();
    parallel_ranges(ctx.threads, qkv.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < heads; ++h)
          rotate_head<kSign>(row + t * width + 2 * h * half, cosines + position[t] * half,
                             sines + position[t] * half, half);
    });
  });
}

}  // namespace

void rope_forward(Ctx& ctx, Tensor qkv, CTensor positions, CTensor cosine, CTensor sine,
                  AttentionShape shape) {
  rotate<1>(ctx, qkv, positions, cosine, sine, shape);
}

void rope_backward(Ctx& ctx, Tensor dqkv, CTensor positions, CTensor cosine, CTensor sine,
                   AttentionShape shape) {
  rotate<-1>(ctx, dqkv, positions, cosine, sine, shape);
}

}  // namespace temper::cpu
