#include "src/ops/norm.h"

#include "src/ops/attention.h"

namespace temper {
namespace {

void check_norm_types(const CTensor& x, const CTensor& w, const CTensor& rstd) {
  CHECK(w.dtype == x.dtype, "w is {}, x is {}", dtype_name(w.dtype), dtype_name(x.dtype));
  CHECK(rstd.dtype == accumulate_dtype(x.dtype), "rstd is {}, x is {}", dtype_name(rstd.dtype),
        dtype_name(x.dtype));
}

void check_heads(const CTensor& x, const CTensor& wq, const CTensor& wk, const CTensor& rstd,
                 AttentionShape shape) {
  CHECK_SHAPE(x, x.dim(0), shape.qkv_width());
  CHECK_SHAPE(wq, shape.head_dim);
  CHECK_SHAPE(wk, shape.head_dim);
  CHECK_SHAPE(rstd, x.dim(0), shape.q_heads + shape.kv_heads);
  check_norm_types(x, wq, rstd);
  check_norm_types(x, wk, rstd);
}

void check_rotated_heads(const CTensor& y, const CTensor& x, const CTensor& wq, const CTensor& wk,
                         const CTensor& rstd, const RopeInput& rope, AttentionShape shape) {
  check_heads(x, wq, wk, rstd, shape);
  CHECK_SHAPE(y, x.dim(0), x.dim(1));
  CHECK_SHAPE(rope.positions, x.dim(0));
  CHECK_SHAPE(rope.cosine, rope.cosine.dim(0), shape.head_dim / 2);
  CHECK_SHAPE(rope.sine, rope.cosine.dim(0), shape.head_dim / 2);
}

}  // namespace

void rmsnorm_forward(Ctx& c, Tensor y, Tensor rstd, CTensor x, CTensor w, double eps) {
  CHECK_SHAPE(w, x.dim(1));
  CHECK_SHAPE(y, x.dim(0), w.dim(0));
  CHECK_SHAPE(x, y.dim(0), w.dim(0));
  CHECK_SHAPE(rstd, x.dim(0));
  check_norm_types(x, w, rstd);
  DISPATCH(c, rmsnorm_forward, y, rstd, x, w, eps);
}

void add_rmsnorm_forward(Ctx& c, Tensor y, Tensor sum, Tensor rstd, CTensor a, CTensor b, CTensor w,
                         double eps) {
  CHECK_SHAPE(w, a.dim(1));
  for (const CTensor& t : {CTensor(y), CTensor(sum), b}) CHECK_SHAPE(t, a.dim(0), a.dim(1));
  CHECK_SHAPE(rstd, a.dim(0));
  check_norm_types(a, w, rstd);
  DISPATCH(c, add_rmsnorm_forward, y, sum, rstd, a, b, w, eps);
}

void rmsnorm_backward(Ctx& c, Tensor dx, Tensor dw, CTensor dy, CTensor dresidual, CTensor x, CTensor w,
                      CTensor rstd) {
  CHECK_SHAPE(x, dy.dim(0), w.dim(0));
  CHECK_SHAPE(dy, x.dim(0), x.dim(1));
  CHECK_SHAPE(dx, x.dim(0), x.dim(1));
  if (!dresidual.empty()) CHECK_SHAPE(dresidual, x.dim(0), x.dim(1));
  CHECK_SHAPE(w, x.dim(1));
  CHECK_SHAPE(dw, x.dim(1));
  CHECK_SHAPE(rstd, x.dim(0));
  check_norm_types(x, w, rstd);
  DISPATCH(c, rmsnorm_backward, dx, dw, dy, dresidual, x, w, rstd);
}

void head_norm_forward(Ctx& c, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk, AttentionShape shape,
                       double eps) {
  check_heads(x, wq, wk, rstd, shape);
  CHECK_SHAPE(y, x.dim(0), x.dim(1));
  DISPATCH(c, head_norm_forward, y, rstd, x, wq, wk, shape, eps);
}

void head_norm_rope_forward(Ctx& c, Tensor y, Tensor rstd, CTensor x, CTensor wq, CTensor wk, RopeInput rope,
                            AttentionShape shape, double eps) {
  check_rotated_heads(y, x, wq, wk, rstd, rope, shape);
  DISPATCH(c, head_norm_rope_forward, y, rstd, x, wq, wk, rope, shape, eps);
}

void head_norm_rope_append(Ctx& c, Tensor y, Tensor rstd, PagedKv kv, int64_t layer, CTensor x, CTensor wq,
                           CTensor wk, RopeInput rope, CTensor cu_seqlens, AttentionShape shape, double eps) {
  check_rotated_heads(y, x, wq, wk, rstd, rope, shape);
  check_pages(kv, layer, x, cu_seqlens, shape);
  DISPATCH(c, head_norm_rope_append, y, rstd, kv, layer, x, wq, wk, rope, cu_seqlens, shape, eps);
}

void head_norm_rope_backward(Ctx& c, Tensor dx, Tensor dwq, Tensor dwk, CTensor dy, CTensor x, CTensor wq,
                             CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape) {
  check_rotated_heads(dx, x, wq, wk, rstd, rope, shape);
  CHECK(shape.head_dim % 2 == 0 && shape.head_dim <= 256, "heads of {}", shape.head_dim);
  CHECK_SHAPE(dy, x.dim(0), x.dim(1));
  CHECK_SHAPE(dwq, shape.head_dim);
  CHECK_SHAPE(dwk, shape.head_dim);
  DISPATCH(c, head_norm_rope_backward, dx, dwq, dwk, dy, x, wq, wk, rstd, rope, shape);
}

}  // namespace temper
