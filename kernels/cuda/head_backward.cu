// Gradients of log-prob and entropy: the rows with a gradient are gathered; per window of ids their logits
// are computed once more, turned into gradients of logits, and multiplied with the weights and with the rows.

#include "kernels/cuda/head.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;
constexpr int64_t kEights = 8;
constexpr int kScanThreads = 1024, kThreads = 256;

/// index[i] = the i-th row with a gradient, *count = how many there are. One block.
__global__ void __launch_bounds__(kScanThreads)
    active_rows_kernel(int32_t* index, int32_t* count, const float* dlogprob, const float* dentropy,
                       int64_t n) {
  begin_kernel();
  constexpr int kWarps = kScanThreads / 32;
  __shared__ int counts[kWarps];
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  int before = 0;
  for (int64_t first = 0; first < n; first += kScanThreads) {
    const int64_t row = first + threadIdx.x;
    const bool active = row < n && (dlogprob[row] != 0.f || dentropy[row] != 0.f);
    const unsigned of_warp = __ballot_sync(~0u, active);
    if (lane == 0) counts[warp] = __popc(of_warp);
    __syncthreads();
    int at = before + __popc(of_warp & ((1u << lane) - 1));
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) at += counts[w];
      before += counts[w];
    }
    if (active) index[at] = static_cast<int32_t>(row);
    __syncthreads();
  }
  if (threadIdx.x == 0) *count = before;
}

/// What the gradients of a row's logits are made of; by row of the batch, `index` leads there.
struct Upstream {
  const float *dlogprob, *dentropy, *lse, *entropy;
  const int32_t *targets, *index;
  int64_t first;  // id of the first row of w
  float scale;
};

/// dz of row blockIdx.y, eight ids a thread: (1/T) (a (1[v = y] - p) - b p (ln p + H)), one rounding to
/// storage; 0 from row `active` on. dz may be z.
template <class S>
__global__ void __launch_bounds__(kThreads)
    logit_gradients_kernel(S* dz, const float* z, const Upstream up, int64_t active, int64_t pitch,
                           int64_t first_id, int64_t ids) {
  begin_kernel();
  const int64_t first = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * kGroup;
  if (first >= ids) return;
  const bool whole = first + kGroup <= ids;
  const int count = whole ? kGroup : static_cast<int>(ids - first);
  const int64_t offset = blockIdx.y * pitch + first;
  float g[kGroup] = {};
  if (blockIdx.y < active) {
    const int64_t row = up.index[blockIdx.y];
    const float a = up.dlogprob[row], b = up.dentropy[row], lse = up.lse[row], entropy = up.entropy[row];
    const int64_t target = up.targets[row] - up.first - first_id - first;
    load_group(g, z + offset, count, whole);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const float log_p = __fsub_rn(cn::tempered(g[i], up.scale), lse);
      const float inner = __fmaf_rn(b, __fadd_rn(log_p, entropy), a);
      g[i] = __fmul_rn(__fmul_rn(-up.scale, expf(log_p)), inner);
      if (i == target) g[i] = __fadd_rn(g[i], __fmul_rn(up.scale, a));
    }
  }
  store_group(dz + offset, g, count, whole);
}

/// dhidden[index[i]] = round(sums[i]), a block per row.
template <class S>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(S* dhidden, const float* sums, const int32_t* index, int64_t D) {
  begin_kernel();
  const int64_t row = index[blockIdx.x];
  for (int64_t d = threadIdx.x; d < D; d += kThreads)
    dhidden[row * D + d] = cn::store<S>(sums[blockIdx.x * D + d]);
}

struct HeadGradients {
  Tensor dhidden, dw;
  CTensor hidden, w;
  CTensor index;  // [n] i32
  Upstream up;
};

/// Ids of the next window: all, or the eights among the last, or the rest that tensor copies cannot address.
int64_t next_ids(int64_t left) {
  return left >= kBackwardIds ? kBackwardIds : left >= kEights ? left / kEights * kEights : left;
}

/// The rows index[first, first + count), with rows of zeros up to whole eights.
void backward_rows(Ctx& ctx, const HeadGradients& head, int64_t first, int64_t count) {
  ArenaScope scope(ctx.scratch);
  const DType dtype = head.hidden.dtype;
  const int64_t n = whole_eights(count), D = head.hidden.dim(1), V = head.w.dim(0);
  const CTensor index = rows(head.index, first, first + count);
  const BackwardRows made = logprob_backward_rows_scratch(ctx.scratch, count, D, V, dtype);
  const Tensor &x = made.x, &z = made.z, &dz = made.dz, &sums = made.dhidden;
  const int64_t pitch = made.pitch;
  gather_rows(ctx, rows(x, 0, count), head.hidden, index);
  const Tensor rest = rows(x, count, n);
  device::fill(ctx.lane, rest.raw(), 0, rest.bytes());
  Upstream up = head.up;
  up.index = index.as<int32_t>();
  for (int64_t id = 0, ids = 0; id < V; id += ids) {
    ids = next_ids(V - id);
    const CTensor w = rows(head.w, id, id + ids);
    multiply(ctx, {z.raw(), x.data, w.data, nullptr, n, ids, D, pitch, dtype, DType::f32});
    dispatch_gpu_storage(dtype, [&](auto s) {
      using S = decltype(s);
      launch(ctx.lane, logit_gradients_kernel<S>,
             dim3(static_cast<unsigned>(blocks_for(ids, kThreads * kGroup)), static_cast<unsigned>(n)),
             kThreads, 0, data_of<S>(dz), z.as<float>(), up, count, pitch, id, ids);
    });
    multiply(ctx, {sums.raw(), dz.data, w.data, nullptr, n, D, ids, D, dtype, DType::f32,
                   ProductKind::input_gradient, /*add=*/id > 0, pitch});
    if (head.dw.empty()) continue;  // the head is not trained
    multiply(ctx, {rows(head.dw, id, id + ids).raw(), dz.data, x.data, nullptr, ids, D, n, D, dtype,
                   DType::f32, ProductKind::weight_gradient, /*add=*/true, pitch});
  }
  dispatch_gpu_storage(head.dhidden.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, scatter_kernel<S>, static_cast<unsigned>(count), kThreads, 0, data_of<S>(head.dhidden),
           sums.as<float>(), index.as<int32_t>(), D);
  });
}

}  // namespace

/// The host waits once, for the number of rows with a gradient: the products are as large as it is.
void logprob_backward(Ctx& ctx, Tensor dhidden, Tensor dw, CTensor dlogprob, CTensor dentropy, CTensor hidden,
                      CTensor w, CTensor targets, CTensor lse, CTensor entropy, double temperature,
                      VocabularyShare share) {
  const int64_t n = hidden.dim(0);
  device::fill(ctx.lane, dhidden.raw(), 0, dhidden.bytes());
  if (n == 0 || w.dim(0) == 0) return;
  ArenaScope scope(ctx.scratch);
  const auto [index, count] = logprob_backward_scratch(ctx.scratch, n);
  launch(ctx.lane, active_rows_kernel, 1, kScanThreads, 0, index.as<int32_t>(), count.as<int32_t>(),
         dlogprob.as<float>(), dentropy.as<float>(), n);
  const int64_t active = to_host<int32_t>(ctx, count)[0];
  const HeadGradients head{dhidden,
                           dw,
                           hidden,
                           w,
                           index,
                           {dlogprob.as<float>(), dentropy.as<float>(), lse.as<float>(), entropy.as<float>(),
                            targets.as<int32_t>(), nullptr, share.first, inverse_temperature(temperature)}};
  const int64_t per_block = backward_rows_at_once(active);
  for (int64_t first = 0; first < active; first += per_block)
    backward_rows(ctx, head, first, std::min(per_block, active - first));
}

}  // namespace temper::cuda
