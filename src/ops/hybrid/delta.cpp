#include "src/ops/hybrid/delta.h"

#include "src/ops/hybrid/dispatch.h"

namespace temper {
namespace {

void check_dtype(const CTensor& t, DType dtype, const char* name) {
  CHECK(t.dtype == dtype, "{} is {}, expected {}", name, dtype_name(t.dtype), dtype_name(dtype));
}

void check_conv(const CTensor& y, const CTensor& x, const CTensor& w, const CTensor& cu_seqlens) {
  CHECK_SHAPE(y, x.dim(0), w.dim(0));
  CHECK_SHAPE(w, y.dim(1), w.dim(1));
  CHECK(x.rank == 2 && x.dim(1) >= w.dim(0), "rows of {} for {} channels", x.dim(1), w.dim(0));
  CHECK(w.dim(1) >= 1 && w.dim(1) <= kMostDeltaTaps, "{} taps", w.dim(1));
  CHECK_SHAPE(cu_seqlens, cu_seqlens.dim(0));
  check_dtype(w, x.dtype, "w");
}

void check_gates(const CTensor& beta, const CTensor& g, const CTensor& x, const CTensor& a_log,
                 const CTensor& dt_bias, const DeltaShape& shape) {
  const DType a = accumulate_dtype(x.dtype);
  CHECK_SHAPE(x, beta.dim(0), shape.projected_width());
  for (const CTensor& t : {beta, g}) CHECK_SHAPE(t, x.dim(0), shape.value_heads), check_dtype(t, a, "a gate");
  CHECK_SHAPE(a_log, shape.value_heads);
  CHECK_SHAPE(dt_bias, shape.value_heads);
  check_dtype(a_log, a, "a_log");
  check_dtype(dt_bias, x.dtype, "dt_bias");
}

void check_rule(const CTensor& o, const CTensor& qkv, const CTensor& beta, const CTensor& g,
                const CTensor& cu_seqlens, const DeltaShape& shape) {
  const DType a = accumulate_dtype(qkv.dtype);
  CHECK_SHAPE(qkv, o.dim(0), shape.qkv_width());
  CHECK_SHAPE(o, qkv.dim(0), shape.value_width());
  for (const CTensor& t : {beta, g})
    CHECK_SHAPE(t, qkv.dim(0), shape.value_heads), check_dtype(t, a, "a gate");
  CHECK_SHAPE(cu_seqlens, cu_seqlens.dim(0));
  CHECK(shape.value_heads % shape.key_heads == 0, "{} value heads, {} key heads", shape.value_heads,
        shape.key_heads);
}

void check_pages(const DeltaPages& p, int64_t layer, const CTensor& x, const CTensor& cu_seqlens) {
  const int64_t sequences = cu_seqlens.dim(0) - 1;
  for (const CTensor& t : {p.tails, p.from, p.to, p.lengths}) CHECK_SHAPE(t, sequences);
  CHECK(layer >= 0 && layer < p.keys.dim(0), "layer {} of {}", layer, p.keys.dim(0));
  for (const Tensor& t : {p.windows, p.keys, p.writes}) check_dtype(t, x.dtype, "a tail");
  for (const Tensor& t : {p.decays, p.states}) check_dtype(t, accumulate_dtype(x.dtype), "a state");
}

void check_windows(const DeltaPages& p, const CTensor& w) {
  CHECK(p.windows.dim(2) == (w.dim(1) - 1) * w.dim(0), "windows of {} elements", p.windows.dim(2));
}

void check_norm(const CTensor& y, const CTensor& rstd, const CTensor& o, const CTensor& x, const CTensor& w,
                const DeltaShape& shape) {
  for (const CTensor& t : {y, o}) CHECK_SHAPE(t, x.dim(0), shape.value_width());
  CHECK_SHAPE(rstd, x.dim(0), shape.value_heads);
  CHECK_SHAPE(x, o.dim(0), shape.projected_width());
  CHECK_SHAPE(w, shape.value_dim);
  check_dtype(w, accumulate_dtype(x.dtype), "w");
}

}  // namespace

void causal_conv_forward(Ctx& c, Tensor y, CTensor x, CTensor w, CTensor cu_seqlens) {
  check_conv(y, x, w, cu_seqlens);
  DISPATCH(c, causal_conv_forward, y, x, w, cu_seqlens);
}

void causal_conv_paged(Ctx& c, Tensor y, DeltaPages pages, int64_t layer, CTensor x, CTensor w,
                       CTensor cu_seqlens) {
  check_conv(y, x, w, cu_seqlens);
  check_pages(pages, layer, x, cu_seqlens);
  check_windows(pages, w);
  DISPATCH(c, causal_conv_paged, y, pages, layer, x, w, cu_seqlens);
}

void causal_conv_backward(Ctx& c, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor w,
                          CTensor cu_seqlens) {
  check_conv(dy, x, w, cu_seqlens);
  CHECK_SHAPE(dx, x.dim(0), x.dim(1));
  CHECK_SHAPE(dw, w.dim(0), w.dim(1));
  DISPATCH(c, causal_conv_backward, dx, dw, dy, x, w, cu_seqlens);
}

void unit_heads_forward(Ctx& c, Tensor y, DeltaShape shape) {
  CHECK_SHAPE(y, y.dim(0), shape.qkv_width());
  DISPATCH(c, unit_heads_forward, y, shape);
}

void unit_heads_backward(Ctx& c, Tensor dy, CTensor y, DeltaShape shape) {
  CHECK_SHAPE(y, dy.dim(0), shape.qkv_width());
  CHECK_SHAPE(dy, y.dim(0), shape.qkv_width());
  DISPATCH(c, unit_heads_backward, dy, y, shape);
}

void delta_gates_forward(Ctx& c, Tensor beta, Tensor g, CTensor x, CTensor a_log, CTensor dt_bias,
                         DeltaShape shape) {
  check_gates(beta, g, x, a_log, dt_bias, shape);
  DISPATCH(c, delta_gates_forward, beta, g, x, a_log, dt_bias, shape);
}

void delta_gates_backward(Ctx& c, Tensor dx, Tensor da_log, Tensor ddt_bias, CTensor dbeta, CTensor dg,
                          CTensor beta, CTensor g, CTensor x, CTensor a_log, CTensor dt_bias,
                          DeltaShape shape) {
  check_gates(dbeta, dg, x, a_log, dt_bias, shape);
  check_gates(beta, g, x, a_log, dt_bias, shape);
  CHECK_SHAPE(dx, x.dim(0), x.dim(1));
  CHECK_SHAPE(da_log, shape.value_heads);
  CHECK_SHAPE(ddt_bias, shape.value_heads);
  DISPATCH(c, delta_gates_backward, dx, da_log, ddt_bias, dbeta, dg, beta, g, x, a_log, dt_bias,
                  shape);
}

void delta_inputs_forward(Ctx& c, Tensor qkv, Tensor beta, Tensor g, CTensor x, CTensor w, CTensor a_log,
                          CTensor dt_bias, CTensor cu_seqlens, DeltaShape shape) {
  check_conv(qkv, x, w, cu_seqlens);
  CHECK_SHAPE(qkv, x.dim(0), shape.qkv_width());
  check_gates(beta, g, x, a_log, dt_bias, shape);
  DISPATCH(c, delta_inputs_forward, qkv, beta, g, x, w, a_log, dt_bias, cu_seqlens, shape);
}

void delta_inputs_paged(Ctx& c, Tensor qkv, Tensor beta, Tensor g, DeltaPages pages, int64_t layer, CTensor x,
                        CTensor w, CTensor a_log, CTensor dt_bias, CTensor cu_seqlens, DeltaShape shape) {
  check_conv(qkv, x, w, cu_seqlens);
  CHECK_SHAPE(qkv, x.dim(0), shape.qkv_width());
  check_gates(beta, g, x, a_log, dt_bias, shape);
  check_pages(pages, layer, x, cu_seqlens);
  check_windows(pages, w);
  DISPATCH(c, delta_inputs_paged, qkv, beta, g, pages, layer, x, w, a_log, dt_bias, cu_seqlens, shape);
}

void delta_conv_backward(Ctx& c, Tensor dx, Tensor dw, Tensor dqkv, CTensor x, CTensor w, CTensor cu_seqlens,
                         DeltaShape shape) {
  check_conv(dqkv, x, w, cu_seqlens);
  CHECK_SHAPE(dqkv, x.dim(0), shape.qkv_width());
  CHECK_SHAPE(dx, x.dim(0), x.dim(1));
  CHECK_SHAPE(dw, w.dim(0), w.dim(1));
  DISPATCH(c, delta_conv_backward, dx, dw, dqkv, x, w, cu_seqlens, shape);
}

void delta_rule_forward(Ctx& c, Tensor o, Tensor u, Tensor decays, CTensor qkv, CTensor beta, CTensor g,
                        CTensor cu_seqlens, DeltaShape shape) {
  check_rule(o, qkv, beta, g, cu_seqlens, shape);
  CHECK_SHAPE(u, o.dim(0), o.dim(1));
  CHECK_SHAPE(decays, g.dim(0), g.dim(1));
  DISPATCH(c, delta_rule_forward, o, u, decays, qkv, beta, g, cu_seqlens, shape);
}

void delta_rule_paged(Ctx& c, Tensor o, DeltaPages pages, int64_t layer, CTensor qkv, CTensor beta, CTensor g,
                      CTensor cu_seqlens, DeltaShape shape) {
  check_rule(o, qkv, beta, g, cu_seqlens, shape);
  check_pages(pages, layer, qkv, cu_seqlens);
  CHECK(pages.keys.dim(2) == kDeltaChunk * shape.key_width() &&
            pages.writes.dim(2) == kDeltaChunk * shape.value_width() &&
            pages.decays.dim(2) == kDeltaChunk * shape.value_heads &&
            pages.states.dim(2) == shape.value_width() * shape.key_dim,
        "tails and slots of another shape");
  DISPATCH(c, delta_rule_paged, o, pages, layer, qkv, beta, g, cu_seqlens, shape);
}

void delta_rule_backward(Ctx& c, Tensor dqkv, Tensor dbeta, Tensor dg, CTensor d_o, CTensor qkv, CTensor beta,
                         CTensor u, CTensor decays, CTensor cu_seqlens, DeltaShape shape) {
  check_rule(d_o, qkv, beta, decays, cu_seqlens, shape);
  check_rule(u, dqkv, dbeta, dg, cu_seqlens, shape);
  DISPATCH(c, delta_rule_backward, dqkv, dbeta, dg, d_o, qkv, beta, u, decays, cu_seqlens, shape);
}

void gated_norm_forward(Ctx& c, Tensor y, Tensor rstd, CTensor o, CTensor x, CTensor w, DeltaShape shape,
                        double eps) {
  check_norm(y, rstd, o, x, w, shape);
  DISPATCH(c, gated_norm_forward, y, rstd, o, x, w, shape, eps);
}

void gated_norm_backward(Ctx& c, Tensor d_o, Tensor dx, Tensor dw, CTensor dy, CTensor o, CTensor x,
                         CTensor w, CTensor rstd, DeltaShape shape) {
  check_norm(d_o, rstd, o, x, w, shape);
  check_norm(dy, rstd, o, x, w, shape);
  CHECK_SHAPE(dx, x.dim(0), x.dim(1));
  CHECK_SHAPE(dw, shape.value_dim);
  DISPATCH(c, gated_norm_backward, d_o, dx, dw, dy, o, x, w, rstd, shape);
}

}  // namespace temper
