// What a gated delta net does row by row: unit vectors of heads, gates, the gated norm. One pass over memory
// each; gradients of parameters as partial sums of blocks, whose size depends on the number of rows alone.

#include <cmath>

#include "kernels/cuda/fold.h"
#include "kernels/cuda/hybrid/hybrid.h"
#include "kernels/cuda/hybrid/teams.h"
#include "kernels/cuda/scratch/hybrid_rows.h"

namespace temper::cuda {
namespace {

namespace cn = canonical;

// ---- unit vectors

/// q and k heads of rows of `row` elements.
struct UnitHeads {
  int items, heads, query_heads, width;
  int64_t row;
  float q_scale;
  bool vector;
};

/// The group of a thread, and what its head is multiplied by.
struct UnitGroup {
  int64_t at;
  int count;
  float scale;

  template <int kLanes>
  TEMPER_DEVICE static UnitGroup of_thread(const UnitHeads& h) {
    const int item = static_cast<int>(blockIdx.x) * (kTeamThreads / kLanes) +
                     static_cast<int>(threadIdx.x) / kLanes,
              first = static_cast<int>(threadIdx.x) % kLanes * kGroup, token = item / h.heads,
              head = item - token * h.heads;
    return {token * h.row + head * h.width + first, item < h.items ? h.width - first : 0,
            head < h.query_heads ? h.q_scale : 1.f};
  }
};

template <class S, int kLanes>
__global__ void __launch_bounds__(kTeamThreads) unit_heads_kernel(S* y, const UnitHeads heads) {
  begin_kernel();
  const auto group = UnitGroup::of_thread<kLanes>(heads);
  const bool whole = heads.vector && group.count > 0;
  float v[kGroup], squares = 0.f;
  load_group(v, y + group.at, group.count, whole);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) squares = cn::add_square(squares, v[i]);
  const float r = cn::unit_scale(team_sum<kLanes>(squares));
#pragma unroll
  for (int i = 0; i < kGroup; ++i) v[i] = cn::unit_value(v[i], r, group.scale);
  if (group.count > 0) store_group(y + group.at, v, group.count, whole);
}

template <class S, int kLanes>
__global__ void __launch_bounds__(kTeamThreads)
    unit_heads_backward_kernel(S* dy, const S* y, const UnitHeads heads) {
  begin_kernel();
  const auto group = UnitGroup::of_thread<kLanes>(heads);
  const bool whole = heads.vector && group.count > 0;
  float n[kGroup], g[kGroup], squares = 0.f, dot = 0.f;
  load_group(n, y + group.at, group.count, whole);
  load_group(g, dy + group.at, group.count, whole);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) squares = cn::add_square(squares, n[i]);
  const float r = cn::unit_scale(team_sum<kLanes>(squares));
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    n[i] = __fmul_rn(n[i], r), g[i] = __fmul_rn(g[i], group.scale);
    dot = __fmaf_rn(n[i], g[i], dot);
  }
  dot = team_sum<kLanes>(dot);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) g[i] = cn::unit_gradient(g[i], n[i], dot, r);
  if (group.count > 0) store_group(dy + group.at, g, group.count, whole);
}

UnitHeads unit_heads_of(const Tensor& y, const CTensor& other, const DeltaShape& shape) {
  const int64_t heads = 2 * shape.key_heads;
  return {heads_of_all(y.dim(0), heads),
          static_cast<int>(heads),
          static_cast<int>(shape.key_heads),
          static_cast<int>(shape.key_dim),
          y.dim(1),
          1.f / std::sqrt(static_cast<float>(shape.key_dim)),
          lies_in_groups({y, other}, {y.dim(1), shape.key_dim})};
}

// ---- gates

struct GateRows {
  int tokens, heads;
  int64_t row, column;  // of x, and where b begins in it
};

template <class S>
__global__ void __launch_bounds__(kTeamThreads)
    delta_gates_kernel(float* beta, float* g, const S* x, const float* a_log, const S* dt_bias,
                       const GateRows rows) {
  begin_kernel();
  const int item = static_cast<int>(blockIdx.x) * kTeamThreads + static_cast<int>(threadIdx.x),
            token = item / rows.heads, head = item - token * rows.heads;
  if (token >= rows.tokens) return;
  const S* gates = x + token * rows.row + rows.column;
  beta[item] = cn::sigmoid(cn::load(gates[head]));
  g[item] =
      cn::decay_gate(a_log[head], __fadd_rn(cn::load(gates[rows.heads + head]), cn::load(dt_bias[head])));
}

template <class S>
struct GatesBackward {
  S* dx;
  const float *dbeta, *dg, *beta, *g, *a_log;
  const S *x, *dt_bias;
  float* partials;  // of da_log; those of ddt_bias are behind them
  GateRows rows;
  int per_block, blocks;
};

constexpr int kGateLanes = 32, kGateRows = 8;  // of a block at once

/// Rows [blockIdx.x per_block, ..) of 32 heads: a thread adds every eighth row, then the eight ascending.
template <class S>
__global__ void __launch_bounds__(kGateLanes* kGateRows)
    delta_gates_backward_kernel(const GatesBackward<S> call) {
  begin_kernel();
  __shared__ float sums[2][kGateRows][kGateLanes];
  const GateRows& rows = call.rows;
  const int lane = static_cast<int>(threadIdx.x), turn = static_cast<int>(threadIdx.y),
            head = static_cast<int>(blockIdx.y) * kGateLanes + lane;
  const int64_t begin = int64_t{blockIdx.x} * call.per_block,
                end = min(begin + call.per_block, int64_t{rows.tokens});
  float log_sum = 0.f, bias_sum = 0.f;
  if (head < rows.heads) {
    const float a_log = call.a_log[head], bias = cn::load(call.dt_bias[head]);
#pragma unroll 2
    for (int64_t t = begin + turn; t < end; t += kGateRows) {
      const int64_t at = t * rows.heads + head, b = t * rows.row + rows.column + head, a = b + rows.heads;
      const float upstream = call.dg[at],
                  da = cn::decay_gate_gradient(upstream, a_log, __fadd_rn(cn::load(call.x[a]), bias));
      call.dx[b] = cn::store<S>(cn::sigmoid_gradient(call.dbeta[at], call.beta[at]));
      call.dx[a] = cn::store<S>(da);
      log_sum = __fmaf_rn(upstream, call.g[at], log_sum);
      bias_sum = __fadd_rn(bias_sum, da);
    }
  }
  sums[0][turn][lane] = log_sum, sums[1][turn][lane] = bias_sum;
  __syncthreads();
  if (turn > 1 || head >= rows.heads) return;
  float sum = sums[turn][0][lane];
#pragma unroll
  for (int k = 1; k < kGateRows; ++k) sum = __fadd_rn(sum, sums[turn][k][lane]);
  call.partials[(int64_t{turn} * call.blocks + blockIdx.x) * rows.heads + head] = sum;
}

GateRows gate_rows_of(const CTensor& x, const DeltaShape& shape) {
  heads_of_all(x.dim(0), shape.value_heads);
  return {static_cast<int>(x.dim(0)), static_cast<int>(shape.value_heads), x.dim(1), shape.gates_column()};
}

// ---- gated norm

/// Value heads, and where z of the first lies in a projected row.
struct GatedHeads {
  int items, heads, width;
  int64_t row, column;
  bool vector;

  TEMPER_DEVICE int64_t z(int item) const {
    const int token = item / heads;
    return token * row + column + (item - token * heads) * width;
  }
};

template <class S, int kLanes>
__global__ void __launch_bounds__(kTeamThreads)
    gated_norm_kernel(S* y, float* rstd, const S* o, const S* x, const float* w, const GatedHeads heads,
                      float eps) {
  const int item = static_cast<int>(blockIdx.x) * (kTeamThreads / kLanes) +
                   static_cast<int>(threadIdx.x) / kLanes,
            first = static_cast<int>(threadIdx.x) % kLanes * kGroup;
  const int count = item < heads.items ? heads.width - first : 0;
  const bool whole = heads.vector && count > 0;
  const int64_t at = int64_t{item} * heads.width + first;
  float v[kGroup], z[kGroup], weight[kGroup], squares = 0.f;
  load_group(weight, w + first, count, whole);
  begin_kernel();
  load_group(v, o + at, count, whole);
  load_group(z, x + heads.z(item) + first, count, whole);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) squares = cn::add_square(squares, v[i]);
  const float r = cn::rms_scale(team_sum<kLanes>(squares), heads.width, eps);
  if (first == 0 && count > 0) rstd[item] = r;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) v[i] = cn::gated_norm_value(v[i], r, weight[i], z[i]);
  if (count > 0) store_group(y + at, v, count, whole);
}

template <class S>
struct GatedNormBackward {
  S *d_o, *dx;
  float* partials;
  const S *dy, *o, *x;
  const float *w, *rstd;
  GatedHeads heads;
  int per_block;
};

/// Heads [blockIdx.x per_block, ..): a team takes two neighbouring ones of every turn. d_o may be dy.
template <class S, int kLanes>
__global__ void __launch_bounds__(kTeamThreads) gated_norm_backward_kernel(const GatedNormBackward<S> call) {
  constexpr int kTeams = kTeamThreads / kLanes, kAtOnce = 2;
  __shared__ float all[kTeams][kLanes * kGroup];
  const GatedHeads& heads = call.heads;
  const int team = static_cast<int>(threadIdx.x) / kLanes,
            first = static_cast<int>(threadIdx.x) % kLanes * kGroup, left = heads.width - first;
  float weight[kGroup], sums[kGroup] = {};
  load_group(weight, call.w + first, left, heads.vector && left > 0);
  begin_kernel();
  const int begin = static_cast<int>(blockIdx.x) * call.per_block,
            end = static_cast<int>(min(int64_t{begin} + call.per_block, int64_t{heads.items}));
  for (int base = begin; base < end; base += kTeams * kAtOnce) {
    RawGroup<S> dy[kAtOnce], o[kAtOnce], z[kAtOnce];
    float rstd[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int item = base + team * kAtOnce + j, count = item < end ? left : 0;
      const bool whole = heads.vector && count > 0;
      const int64_t at = int64_t{item} * heads.width + first;
      load_raw(dy[j], call.dy + at, count, whole);
      load_raw(o[j], call.o + at, count, whole);
      load_raw(z[j], call.x + heads.z(item) + first, count, whole);
      rstd[j] = item < end ? call.rstd[item] : 0.f;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int item = base + team * kAtOnce + j, count = item < end ? left : 0;
      const bool whole = heads.vector && count > 0;
      float dn[kGroup], n[kGroup], dz[kGroup], dot = 0.f;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const float gate = cn::load(z[j].at[i]), dm = cn::load(dy[j].at[i]), s = cn::silu(gate);
        const float through = __fmul_rn(dm, weight[i]);
        n[i] = __fmul_rn(cn::load(o[j].at[i]), rstd[j]);
        dn[i] = __fmul_rn(through, s);
        dz[i] = __fmul_rn(__fmul_rn(through, n[i]), cn::silu_slope(gate));
        sums[i] = __fmaf_rn(__fmul_rn(dm, n[i]), s, sums[i]);
        dot = __fmaf_rn(dn[i], n[i], dot);
      }
      const float mean = __fdiv_rn(team_sum<kLanes>(dot), static_cast<float>(heads.width));
#pragma unroll
      for (int i = 0; i < kGroup; ++i) dn[i] = cn::unit_gradient(dn[i], n[i], mean, rstd[j]);
      if (count <= 0) continue;
      store_group(call.dx + heads.z(item) + first, dz, count, whole);
      store_group(call.d_o + int64_t{item} * heads.width + first, dn, count, whole);
    }
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) all[team][first + i] = sums[i];
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= heads.width) return;
  float sum = all[0][column];
  for (int k = 1; k < kTeams; ++k) sum = __fadd_rn(sum, all[k][column]);
  call.partials[int64_t{blockIdx.x} * heads.width + column] = sum;
}

GatedHeads gated_heads_of(const CTensor& x, const DeltaShape& shape, bool lies) {
  return {heads_of_all(x.dim(0), shape.value_heads),
          static_cast<int>(shape.value_heads),
          static_cast<int>(shape.value_dim),
          x.dim(1),
          shape.qkv_width(),
          lies && lies_in_groups({x}, {x.dim(1), shape.qkv_width(), shape.value_dim})};
}

}  // namespace

void unit_heads_forward(Ctx& ctx, Tensor y, DeltaShape shape) {
  const UnitHeads heads = unit_heads_of(y, y, shape);
  dispatch_gpu_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    with_team(shape.key_dim, [&](auto lanes) {
      launch(ctx.lane, unit_heads_kernel<S, lanes>, blocks_for(heads.items, kTeamThreads / lanes),
             kTeamThreads, 0, data_of<S>(y), heads);
    });
  });
}

void unit_heads_backward(Ctx& ctx, Tensor dy, CTensor y, DeltaShape shape) {
  const UnitHeads heads = unit_heads_of(dy, y, shape);
  dispatch_gpu_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    with_team(shape.key_dim, [&](auto lanes) {
      launch(ctx.lane, unit_heads_backward_kernel<S, lanes>, blocks_for(heads.items, kTeamThreads / lanes),
             kTeamThreads, 0, data_of<S>(dy), data_of<S>(y), heads);
    });
  });
}

void delta_gates_forward(Ctx& ctx, Tensor beta, Tensor g, CTensor x, CTensor a_log, CTensor dt_bias,
                         DeltaShape shape) {
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    launch(ctx.lane, delta_gates_kernel<S>, blocks_for(beta.size(), kTeamThreads), kTeamThreads, 0,
           beta.as<float>(), g.as<float>(), data_of<S>(x), a_log.as<float>(), data_of<S>(dt_bias),
           gate_rows_of(x, shape));
  });
}

void delta_gates_backward(Ctx& ctx, Tensor dx, Tensor da_log, Tensor ddt_bias, CTensor dbeta, CTensor dg,
                          CTensor beta, CTensor g, CTensor x, CTensor a_log, CTensor dt_bias,
                          DeltaShape shape) {
  if (x.dim(0) == 0) return;
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    ArenaScope scope(ctx.scratch);
    const NormPartials partials = delta_gates_backward_scratch(ctx.scratch, x.dim(0), shape.value_heads);
    const auto heads = static_cast<int>(shape.value_heads);
    const int blocks = static_cast<int>(partials.sums.dim(1));
    float* sums = partials.sums.as<float>();
    launch(ctx.lane, delta_gates_backward_kernel<S>,
           dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_for(heads, kGateLanes))),
           dim3(kGateLanes, kGateRows), 0,
           GatesBackward<S>{data_of<S>(dx), dbeta.as<float>(), dg.as<float>(), beta.as<float>(),
                            g.as<float>(), a_log.as<float>(), data_of<S>(x), data_of<S>(dt_bias), sums,
                            gate_rows_of(x, shape), static_cast<int>(partials.per_block), blocks});
    fold_partials(ctx, heads, {da_log.as<float>(), sums, blocks},
                  {ddt_bias.as<float>(), sums + int64_t{blocks} * heads, blocks});
  });
}

void gated_norm_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor o, CTensor x, CTensor w, DeltaShape shape,
                        double eps) {
  const GatedHeads heads = gated_heads_of(x, shape, lies_in_groups({y, o, w}, {}));
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    with_team(shape.value_dim, [&](auto lanes) {
      launch(ctx.lane, gated_norm_kernel<S, lanes>, blocks_for(heads.items, kTeamThreads / lanes),
             kTeamThreads, 0, data_of<S>(y), rstd.as<float>(), data_of<S>(o), data_of<S>(x), w.as<float>(),
             heads, eps);
    });
  });
}

void gated_norm_backward(Ctx& ctx, Tensor d_o, Tensor dx, Tensor dw, CTensor dy, CTensor o, CTensor x,
                         CTensor w, CTensor rstd, DeltaShape shape) {
  if (x.dim(0) == 0) return;
  const GatedHeads heads = gated_heads_of(x, shape, lies_in_groups({d_o, dx, dy, o, w}, {}));
  ArenaScope scope(ctx.scratch);
  const NormPartials partials = gated_norm_backward_scratch(ctx.scratch, heads.items, heads.width);
  const int blocks = static_cast<int>(partials.sums.dim(0));
  dispatch_gpu_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    with_team(shape.value_dim, [&](auto lanes) {
      launch(ctx.lane, gated_norm_backward_kernel<S, lanes>, blocks, kTeamThreads, 0,
             GatedNormBackward<S>{data_of<S>(d_o), data_of<S>(dx), partials.sums.as<float>(), data_of<S>(dy),
                                  data_of<S>(o), data_of<S>(x), w.as<float>(), rstd.as<float>(), heads,
                                  static_cast<int>(partials.per_block)});
    });
  });
  fold_partials(ctx, heads.width, {dw.as<float>(), partials.sums.as<float>(), blocks});
}

}  // namespace temper::cuda
