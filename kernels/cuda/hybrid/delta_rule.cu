#include "kernels/cuda/hybrid/delta_trial.h"
#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/launch.h"

namespace temper::cuda {
namespace {

DeltaCall call_of(const Tensor& o, const CTensor& qkv, const CTensor& beta, const CTensor& g,
                  const CTensor& cu_seqlens, const DeltaShape& shape) {
  return {.o = o.raw(),
          .qkv = qkv.data,
          .beta = data_of<float>(beta),
          .g = data_of<float>(g),
          .cu = data_of<int32_t>(cu_seqlens),
          .T = static_cast<int>(qkv.dim(0)),
          .S = static_cast<int>(cu_seqlens.dim(0)) - 1,
          .heads = {.value_heads = static_cast<int>(shape.value_heads),
                    .group = static_cast<int>(shape.heads_per_key()),
                    .key_dim = static_cast<int>(shape.key_dim),
                    .value_dim = static_cast<int>(shape.value_dim),
                    .key_width = shape.key_width(),
                    .row_width = shape.qkv_width()},
          .paged = false,
          .u = nullptr,
          .decays = nullptr,
          .pages = {}};
}
void* layer_of(const Tensor& pool, int64_t layer) {
  return static_cast<char*>(pool.raw()) + layer * pool.dim(1) * pool.dim(2) * dtype_size(pool.dtype);
}

}  // namespace

DeltaCall packed_call(Tensor o, Tensor u, Tensor decays, CTensor qkv, CTensor beta, CTensor g,
                      CTensor cu_seqlens, const DeltaShape& shape) {
  DeltaCall c = call_of(o, qkv, beta, g, cu_seqlens, shape);
  c.u = u.raw();
  c.decays = data_of<float>(decays);
  return c;
}

DeltaCall paged_call(Tensor o, const DeltaPages& pages, int64_t layer, CTensor qkv, CTensor beta, CTensor g,
                     CTensor cu_seqlens, const DeltaShape& shape) {
  DeltaCall c = call_of(o, qkv, beta, g, cu_seqlens, shape);
  c.paged = true;
  c.pages = {.keys = layer_of(pages.keys, layer),
             .writes = layer_of(pages.writes, layer),
             .decays = static_cast<float*>(layer_of(pages.decays, layer)),
             .states = layer_of(pages.states, layer),
             .tails = data_of<int32_t>(pages.tails),
             .from = data_of<int32_t>(pages.from),
             .to = data_of<int32_t>(pages.to),
             .lengths = data_of<int32_t>(pages.lengths)};
  return c;
}

void delta_rule_forward(Ctx& ctx, Tensor o, Tensor u, Tensor decays, CTensor qkv, CTensor beta, CTensor g,
                        CTensor cu_seqlens, DeltaShape shape) {
  const DeltaCall c = packed_call(o, u, decays, qkv, beta, g, cu_seqlens, shape);
  if (may_use_delta_kernels(ctx, qkv.dtype, c.heads))
    return delta_rule_scan(ctx, c, /*skip_single_rows=*/false);
  delta_rule_plain(ctx, qkv.dtype, c, /*skip_single_rows=*/false);
}

void delta_rule_paged(Ctx& ctx, Tensor o, DeltaPages pages, int64_t layer, CTensor qkv, CTensor beta,
                      CTensor g, CTensor cu_seqlens, DeltaShape shape) {
  const DeltaCall c = paged_call(o, pages, layer, qkv, beta, g, cu_seqlens, shape);
  if (!may_use_delta_kernels(ctx, qkv.dtype, c.heads))
    return delta_rule_plain(ctx, qkv.dtype, c, /*skip_single_rows=*/false);
  const bool has_many = c.T > c.S;
  delta_rule_decode(ctx, c, /*single_rows_only=*/has_many);
  if (has_many) delta_rule_scan(ctx, c, /*skip_single_rows=*/true);
}

}  // namespace temper::cuda
