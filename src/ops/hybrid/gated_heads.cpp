#include "src/ops/hybrid/gated_heads.h"

#include "src/ops/attention.h"
#include "src/ops/hybrid/dispatch.h"

namespace temper {
namespace {

int64_t projected_width(const AttentionShape& s) { return 2 * s.q_width() + 2 * s.kv_width(); }

void check_heads(const CTensor& qkv, const CTensor& x, const CTensor& wq, const CTensor& wk,
                 const CTensor& rstd, const RopeInput& rope, const AttentionShape& shape) {
  CHECK_SHAPE(x, rope.positions.dim(0), projected_width(shape));
  CHECK_SHAPE(qkv, x.dim(0), shape.qkv_width());
  CHECK_SHAPE(wq, shape.head_dim);
  CHECK_SHAPE(wk, shape.head_dim);
  CHECK_SHAPE(rstd, x.dim(0), shape.q_heads + shape.kv_heads);
  CHECK(rstd.dtype == accumulate_dtype(x.dtype), "rstd is {}, x is {}", dtype_name(rstd.dtype),
        dtype_name(x.dtype));
  CHECK(shape.head_dim <= kMaxHeadDim, "heads of {}", shape.head_dim);
  CHECK(2 * rope.cosine.dim(1) <= shape.head_dim, "{} of {} elements of a head are rotated",
        2 * rope.cosine.dim(1), shape.head_dim);
  CHECK_SHAPE(rope.sine, rope.cosine.dim(0), rope.cosine.dim(1));
}

}  // namespace

void gated_heads_forward(Ctx& c, Tensor qkv, Tensor rstd, CTensor x, CTensor wq, CTensor wk, RopeInput rope,
                         AttentionShape shape, double eps) {
  check_heads(qkv, x, wq, wk, rstd, rope, shape);
  DISPATCH(c, gated_heads_forward, qkv, rstd, x, wq, wk, rope, shape, eps);
}

void gated_heads_backward(Ctx& c, Tensor dx, Tensor dwq, Tensor dwk, CTensor dqkv, CTensor x, CTensor wq,
                          CTensor wk, CTensor rstd, RopeInput rope, AttentionShape shape) {
  check_heads(dqkv, x, wq, wk, rstd, rope, shape);
  CHECK_SHAPE(dx, x.dim(0), x.dim(1));
  CHECK_SHAPE(dwq, shape.head_dim);
  CHECK_SHAPE(dwk, shape.head_dim);
  DISPATCH(c, gated_heads_backward, dx, dwq, dwk, dqkv, x, wq, wk, rstd, rope, shape);
}

void output_gate_forward(Ctx& c, Tensor y, CTensor o, CTensor x, AttentionShape shape) {
  CHECK_SHAPE(x, o.dim(0), projected_width(shape));
  for (const CTensor& t : {CTensor(y), o}) CHECK_SHAPE(t, x.dim(0), shape.q_width());
  DISPATCH(c, output_gate_forward, y, o, x, shape);
}

void output_gate_backward(Ctx& c, Tensor d_o, Tensor dx, CTensor dy, CTensor o, CTensor x,
                          AttentionShape shape) {
  for (const CTensor& t : {CTensor(dx), x}) CHECK_SHAPE(t, o.dim(0), projected_width(shape));
  for (const CTensor& t : {CTensor(d_o), dy, o}) CHECK_SHAPE(t, x.dim(0), shape.q_width());
  DISPATCH(c, output_gate_backward, d_o, dx, dy, o, x, shape);
}

}  // namespace temper
