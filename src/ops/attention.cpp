#include "src/ops/attention.h"

namespace temper {
namespace {

void check_heads(const Ctx& c, const CTensor& qkv, const CTensor& cu_seqlens, const AttentionShape& shape) {
  const int64_t step = head_dim_step(c.device);
  CHECK(shape.head_dim > 0 && shape.head_dim % step == 0 && shape.head_dim <= kMaxHeadDim,
        "head_dim {} is no multiple of {} up to {}", shape.head_dim, step, kMaxHeadDim);
  CHECK(shape.kv_heads > 0 && shape.q_heads > 0 && shape.q_heads % shape.kv_heads == 0,
        "{} query heads over {} kv heads", shape.q_heads, shape.kv_heads);
  CHECK_SHAPE(qkv, qkv.dim(0), shape.qkv_width());
  CHECK(cu_seqlens.rank == 1 && cu_seqlens.dim(0) >= 1, "cu_seqlens has shape {}", cu_seqlens.shape_text());
}

}  // namespace

void check_pages(const PagedKv& kv, int64_t layer, const CTensor& qkv, const CTensor& cu_seqlens,
                 const AttentionShape& shape) {
  const int64_t sequences = cu_seqlens.dim(0) - 1;
  CHECK(kv.page_tokens > 0 && kv.page_tokens % kKeyGroup == 0, "pages of {} tokens", kv.page_tokens);
  CHECK(layer >= 0 && layer < kv.keys.dim(0), "layer {} of {}", layer, kv.keys.dim(0));
  CHECK_SHAPE(kv.keys, kv.keys.dim(0), kv.keys.dim(1), shape.kv_width() * kv.page_tokens);
  CHECK_SHAPE(kv.values, kv.keys.dim(0), kv.keys.dim(1), shape.kv_width() * kv.page_tokens);
  CHECK_SHAPE(kv.page_table, sequences, kv.page_table.dim(1));
  CHECK_SHAPE(kv.lengths, sequences);
  CHECK(kv.keys.dtype == qkv.dtype && kv.values.dtype == qkv.dtype, "{} rows, pages of {} and {}",
        dtype_name(qkv.dtype), dtype_name(kv.keys.dtype), dtype_name(kv.values.dtype));
}

void attention_varlen_forward(Ctx& c, Tensor out, Tensor lse, CTensor qkv, CTensor cu_seqlens,
                              AttentionShape shape, double scale) {
  check_heads(c, qkv, cu_seqlens, shape);
  CHECK(scale > 0, "scale {}", scale);
  CHECK_SHAPE(out, qkv.dim(0), shape.q_width());
  CHECK_SHAPE(lse, shape.q_heads, qkv.dim(0));
  DISPATCH(c, attention_varlen_forward, out, lse, qkv, cu_seqlens, shape, scale);
}

void attention_varlen_backward(Ctx& c, Tensor dqkv, CTensor dout, CTensor qkv, CTensor out, CTensor lse,
                               CTensor cu_seqlens, AttentionShape shape, double scale) {
  check_heads(c, qkv, cu_seqlens, shape);
  CHECK_SHAPE(dqkv, qkv.dim(0), shape.qkv_width());
  CHECK_SHAPE(out, qkv.dim(0), shape.q_width());
  CHECK_SHAPE(dout, qkv.dim(0), shape.q_width());
  CHECK_SHAPE(lse, shape.q_heads, qkv.dim(0));
  DISPATCH(c, attention_varlen_backward, dqkv, dout, qkv, out, lse, cu_seqlens, shape, scale);
}

void append_kv(Ctx& c, PagedKv kv, int64_t layer, CTensor qkv, CTensor cu_seqlens, AttentionShape shape) {
  check_heads(c, qkv, cu_seqlens, shape);
  check_pages(kv, layer, qkv, cu_seqlens, shape);
  DISPATCH(c, append_kv, kv, layer, qkv, cu_seqlens, shape);
}

void attention_paged(Ctx& c, Tensor out, CTensor qkv, PagedKv kv, int64_t layer, CTensor cu_seqlens,
                     AttentionShape shape, double scale) {
  check_heads(c, qkv, cu_seqlens, shape);
  check_pages(kv, layer, qkv, cu_seqlens, shape);
  CHECK(scale > 0, "scale {}", scale);
  CHECK_SHAPE(out, qkv.dim(0), shape.q_width());
  DISPATCH(c, attention_paged, out, qkv, kv, layer, cu_seqlens, shape, scale);
}

}  // namespace temper
