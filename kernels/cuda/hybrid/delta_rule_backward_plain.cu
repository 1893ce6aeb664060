// Backward of the gated delta rule for fp32, in the steps of delta_rule_backward.cu: a thread makes an
// element or a column at a time, each sum one chain.

#include "kernels/cuda/hybrid/delta_rule_backward.h"

namespace temper::cuda::delta_backward {
namespace {

using Plain = Call<float>;

constexpr int kRowThreads = 128, kColumnThreads = 32, kStateThreads = 256;
constexpr int kEndPlace = 2 * C;  // of a row's pairs: e of the formulas

struct Place {
  Chunk chunk;
  int row;  // in the chunk
};
TEMPER_DEVICE Place place_of(const int32_t* cu, int sequences, int row) {
  int low = 0, high = sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (cu[middle] <= row)
      low = middle;
    else
      high = middle - 1;
  }
  const Sequence q = sequence(cu, low);
  const int i = (row - q.row) / C;
  return {{q.row + i * C, min(q.rows - i * C, C), i > 0 ? q.border + i - 1 : -1,
           i + 1 < q.chunks() ? q.border + i : -1},
          row - q.row - i * C};
}

TEMPER_DEVICE float dot(const float* a, const float* b, int count) {
  float sum = 0.f;
  for (int i = 0; i < count; ++i) sum = __fmaf_rn(a[i], b[i], sum);
  return sum;
}

struct Rows {
  const Plain& c;
  int head, row;  // of a chunk's first
  TEMPER_DEVICE const float* q(int i) const { return qkv(i) + c.q_column(head / c.per_key()); }
  TEMPER_DEVICE const float* k(int i) const { return qkv(i) + c.k_column(head / c.per_key()); }
  TEMPER_DEVICE const float* v(int i) const { return qkv(i) + c.v_column(head); }
  TEMPER_DEVICE const float* u(int i) const { return c.u + c.at(row + i, head) * c.dv; }
  TEMPER_DEVICE const float* d_o(int i) const { return c.d_o + c.at(row + i, head) * c.dv; }
  TEMPER_DEVICE float* y(int i) const { return c.y + c.at(row + i, head) * c.wide_dv(); }
  TEMPER_DEVICE float* dv(int i) const { return c.dqkv + (row + i) * c.width() + c.v_column(head); }
  TEMPER_DEVICE float* p(int i) const { return c.pairs + c.at(row + i, head) * kPairs; }
  TEMPER_DEVICE float* a(int i) const { return p(i) + C; }
  TEMPER_DEVICE const float4& rates(int i) const { return c.rates[c.at(row + i, head)]; }

 private:
  TEMPER_DEVICE const float* qkv(int i) const { return c.qkv + (row + i) * c.width(); }
};

/// Block (row, value head), a thread per other row of the chunk.
__global__ void __launch_bounds__(C) plain_pairs_kernel(const Plain c) {
  begin_kernel();
  const auto [chunk, i] = place_of(c.cu, c.S, blockIdx.x);
  const int j = threadIdx.x;
  const Rows rows{c, static_cast<int>(blockIdx.y), chunk.row};
  const auto decay = [&](int n) { return c.decays[c.at(chunk.row + n, rows.head)]; };
  const float g = decay(i), d = j <= i ? exponential(__fsub_rn(g, decay(j))) : 0.f;
  rows.p(i)[j] = j <= i ? __fmul_rn(d, dot(rows.q(i), rows.k(j), c.dk)) : 0.f;
  rows.a(i)[j] = j < i ? __fmul_rn(d, dot(rows.k(i), rows.k(j), c.dk)) : 0.f;
  if (j == 0)
    c.rates[c.at(chunk.row + i, rows.head)] =
        make_float4(exponential(g), exponential(__fsub_rn(decay(chunk.rows - 1), g)),
                    c.beta[c.at(chunk.row + i, rows.head)], g);
}

/// Block (elements, value head, sequence): an element of the state through all chunks.
__global__ void __launch_bounds__(kStateThreads) plain_states_kernel(const Plain c) {
  begin_kernel();
  const Sequence q = sequence(c.cu, blockIdx.z);
  const int head = blockIdx.y, at = blockIdx.x * kStateThreads + threadIdx.x, d = at / c.dk, a = at % c.dk;
  if (d >= c.dv) return;
  float state = 0.f;
  for (int i = 0; i + 1 < q.chunks(); ++i) {
    const Rows rows{c, head, q.row + i * C};
    state = __fmul_rn(rows.rates(C - 1).x, state);
    for (int j = 0; j < C; ++j)
      state = __fmaf_rn(rows.k(j)[a], __fmul_rn(rows.rates(j).y, rows.u(j)[d]), state);
    c.states[c.state_at(q.border + i, head) + d * c.wide_dk() + a] = state;
  }
}

/// dU, Y and dV of a column, in y.
TEMPER_DEVICE void solve_column(const Rows& r, int rows, const float* gradient, int d,
                                float (&y)[C][kColumnThreads]) {
  const int own = threadIdx.x;
  for (int j = rows - 1; j >= 0; --j) {
    float sum = 0.f;
    if (gradient) sum = __fmul_rn(r.rates(j).y, dot(r.k(j), gradient, r.c.dk));
    for (int i = j; i < rows; ++i) sum = __fmaf_rn(r.p(i)[j], r.d_o(i)[d], sum);
    for (int i = j + 1; i < rows; ++i) sum = __fmaf_rn(-r.a(i)[j], __fmul_rn(r.rates(i).z, y[i][own]), sum);
    y[j][own] = sum;
    r.y(j)[d] = sum;
    r.dv(j)[d] = __fmul_rn(r.rates(j).z, sum);
  }
}

/// Block (columns, value head, sequence): a column of dS through all chunks.
__global__ void __launch_bounds__(kColumnThreads) plain_reverse_kernel(const Plain c) {
  begin_kernel();
  __shared__ float y[C][kColumnThreads];
  const Sequence q = sequence(c.cu, blockIdx.z);
  const int head = blockIdx.y, d = blockIdx.x * kColumnThreads + threadIdx.x;
  if (d >= c.dv) return;
  const auto gradient = [&](int border) {
    return c.dstates + c.state_at(q.border + border, head) + d * c.wide_dk();
  };
  for (int i = q.chunks() - 1; i >= 0; --i) {
    const Rows r{c, head, q.row + i * C};
    const int rows = min(C, q.rows - i * C);
    const float* const after = i + 1 < q.chunks() ? gradient(i) : nullptr;
    solve_column(r, rows, after, d, y);
    if (i == 0) break;
    for (int a = 0; a < c.dk; ++a) {
      float sum = after ? __fmul_rn(r.rates(rows - 1).x, after[a]) : 0.f;
      for (int j = 0; j < rows; ++j) {
        const float4 rate = r.rates(j);
        sum = __fmaf_rn(__fmul_rn(rate.x, r.q(j)[a]), r.d_o(j)[d], sum);
        sum = __fmaf_rn(-__fmul_rn(rate.x, r.k(j)[a]), __fmul_rn(rate.z, y[j][threadIdx.x]), sum);
      }
      gradient(i - 1)[a] = sum;
    }
  }
}

/// Sum over a block of kRowThreads.
TEMPER_DEVICE float row_sum(float x, float* parts) {
  x = cn::warp_sum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.f;
  for (int w = 0; w < kRowThreads / 32; ++w) sum = __fadd_rn(sum, parts[w]);
  return sum;
}

struct Factors {
  float f[C], turned_f[C], h[C], turned_h[C];  // (dP o D)_ij, _ji, (dA o D)_ij, _ji of a row i
  float parts[kRowThreads / 32];
};

/// Row i with row j of the chunk: factors, and parts of dbeta_i and dG_i.
TEMPER_DEVICE void pair_gradients(const Rows& r, int i, int j, Factors& s, float& beta, float& decay) {
  const Plain& c = r.c;
  const float4 own = r.rates(i), other = r.rates(j);
  s.f[j] = s.turned_f[j] = s.h[j] = s.turned_h[j] = 0.f;
  if (j <= i) {
    const float d = exponential(__fsub_rn(own.w, other.w)), dp = dot(r.d_o(i), r.u(j), c.dv);
    s.f[j] = __fmul_rn(dp, d);
    decay = __fmul_rn(dp, r.p(i)[j]);
    if (j < i) {
      const float yu = dot(r.y(i), r.u(j), c.dv), da = -__fmul_rn(own.z, yu);
      s.h[j] = __fmul_rn(da, d);
      beta = -__fmul_rn(r.a(i)[j], yu);
      decay = __fmaf_rn(da, r.a(i)[j], decay);
    }
  }
  if (j >= i) {
    const float d = exponential(__fsub_rn(other.w, own.w)), dp = dot(r.d_o(j), r.u(i), c.dv);
    s.turned_f[j] = __fmul_rn(dp, d);
    decay = __fmaf_rn(-dp, r.p(j)[i], decay);
    if (j > i) {
      const float da = -__fmul_rn(other.z, dot(r.y(j), r.u(i), c.dv));
      s.turned_h[j] = __fmul_rn(da, d);
      decay = __fmaf_rn(-da, r.a(j)[i], decay);
    }
  }
}

/// Block (row, key head): a thread per column.
__global__ void __launch_bounds__(kRowThreads) plain_rows_kernel(const Plain c) {
  begin_kernel();
  __shared__ Factors s;
  constexpr int kMost = 256 / kRowThreads;
  const auto [chunk, i] = place_of(c.cu, c.S, blockIdx.x);
  const int key_head = blockIdx.y;
  float dq[kMost] = {}, dk[kMost] = {};
  for (int h = key_head * c.per_key(); h < (key_head + 1) * c.per_key(); ++h) {
    const Rows r{c, h, chunk.row};
    const float4 rate = r.rates(i);
    float beta = 0.f, decay = 0.f, end = 0.f;
    if (static_cast<int>(threadIdx.x) < chunk.rows)
      pair_gradients(r, i, static_cast<int>(threadIdx.x), s, beta, decay);
    for (int d = threadIdx.x; d < c.dv; d += kRowThreads) beta = __fmaf_rn(r.y(i)[d], r.v(i)[d], beta);
    __syncthreads();
    for (int n = 0; n < kMost; ++n) {
      const int a = threadIdx.x + n * kRowThreads;
      if (a >= c.dk) break;
      float os = 0.f, ys = 0.f, x = 0.f;
      if (chunk.before >= 0) {
        const float* const state = c.states + c.state_at(chunk.before, h) + a;
        for (int d = 0; d < c.dv; ++d) {
          os = __fmaf_rn(r.d_o(i)[d], state[d * c.wide_dk()], os);
          ys = __fmaf_rn(r.y(i)[d], state[d * c.wide_dk()], ys);
        }
      }
      if (chunk.after >= 0) {
        const float* const gradient = c.dstates + c.state_at(chunk.after, h) + a;
        for (int d = 0; d < c.dv; ++d) x = __fmaf_rn(r.u(i)[d], gradient[d * c.wide_dk()], x);
      }
      os = __fmul_rn(rate.x, os), ys = __fmul_rn(rate.x, ys), x = __fmul_rn(rate.y, x);
      const float k = r.k(i)[a], read = __fmul_rn(k, ys);
      beta = __fsub_rn(beta, read);
      decay = __fmaf_rn(r.q(i)[a], os, __fmaf_rn(-rate.z, read, __fmaf_rn(-k, x, decay)));
      end = __fmaf_rn(k, x, end);
      float to_q = os, to_k = __fmaf_rn(-rate.z, ys, x);
      for (int j = 0; j < chunk.rows; ++j) {
        to_q = __fmaf_rn(s.f[j], r.k(j)[a], to_q);
        to_k = __fmaf_rn(s.turned_f[j], r.q(j)[a], to_k);
        to_k = __fmaf_rn(__fadd_rn(s.h[j], s.turned_h[j]), r.k(j)[a], to_k);
      }
      dq[n] = __fadd_rn(dq[n], to_q);
      dk[n] = __fadd_rn(dk[n], to_k);
    }
    beta = row_sum(beta, s.parts), decay = row_sum(decay, s.parts), end = row_sum(end, s.parts);
    if (threadIdx.x == 0) {
      c.dbeta[c.at(chunk.row + i, h)] = beta;
      c.dg[c.at(chunk.row + i, h)] = decay;
      r.p(i)[kEndPlace] = end;
    }
  }
  float* const to = c.dqkv + (chunk.row + i) * c.width();
  for (int n = 0; n < kMost; ++n) {
    const int a = threadIdx.x + n * kRowThreads;
    if (a >= c.dk) break;
    to[c.q_column(key_head) + a] = dq[n];
    to[c.k_column(key_head) + a] = dk[n];
  }
}

/// Block (chunk, value head): dg from dG.
__global__ void __launch_bounds__(kRowThreads) plain_decays_kernel(const Plain c) {
  begin_kernel();
  __shared__ float parts[kRowThreads / 32];
  const Chunk chunk = chunk_of(c.cu, c.S, blockIdx.x);
  if (chunk.rows == 0) return;
  const Rows r{c, static_cast<int>(blockIdx.y), chunk.row};
  float states = 0.f;
  if (chunk.before >= 0 && chunk.after >= 0)
    for (int d = threadIdx.x; d < c.dv; d += kRowThreads)
      states = __fadd_rn(states, dot(c.states + c.state_at(chunk.before, r.head) + d * c.wide_dk(),
                                     c.dstates + c.state_at(chunk.after, r.head) + d * c.wide_dk(), c.dk));
  states = row_sum(states, parts);
  if (threadIdx.x > 0) return;
  float sum = __fmul_rn(r.rates(chunk.rows - 1).x, states);
  for (int i = 0; i < chunk.rows; ++i) sum = __fadd_rn(sum, r.p(i)[kEndPlace]);
  for (int i = chunk.rows - 1; i >= 0; --i) {
    float& dg = c.dg[c.at(chunk.row + i, r.head)];
    dg = sum = __fadd_rn(sum, dg);
  }
}

}  // namespace

void plain_backward(Ctx& ctx, const Call<float>& c) {
  launch(ctx.lane, plain_pairs_kernel, dim3(c.T, c.Hv), C, 0, c);
  launch(ctx.lane, plain_states_kernel, dim3(blocks_for(int64_t{c.dk} * c.dv, kStateThreads), c.Hv, c.S),
         kStateThreads, 0, c);
  launch(ctx.lane, plain_reverse_kernel, dim3(blocks_for(c.dv, kColumnThreads), c.Hv, c.S), kColumnThreads, 0,
         c);
  launch(ctx.lane, plain_rows_kernel, dim3(c.T, c.Hk), kRowThreads, 0, c);
  launch(ctx.lane, plain_decays_kernel, dim3(chunk_numbers(c), c.Hv), kRowThreads, 0, c);
}

}  // namespace temper::cuda::delta_backward
