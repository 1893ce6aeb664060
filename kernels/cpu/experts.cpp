// Feed-forward layers of experts: choosing, sorting, weighing. Their products are those of
// kernels/cpu/linear.cpp on the rows of each expert.

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/cpu/softmax.h"

namespace temper::cpu {
namespace {

template <class F>
void dispatch_accumulate(DType t, F&& f) {
  if (t == DType::f64)
    f(double{});
  else
    f(float{});
}

/// What is compared: NaN is less than any number.
template <class A>
A rank_of(A u) {
  return u == u ? u : -std::numeric_limits<A>::infinity();
}

/// The K largest of u, ids ascending.
template <class A>
void choose_largest(int32_t* ids, const A* u, int64_t num_experts, int64_t k) {
  std::vector<int32_t> order(static_cast<size_t>(num_experts));
  for (int64_t e = 0; e < num_experts; ++e) order[static_cast<size_t>(e)] = static_cast<int32_t>(e);
  const auto before = [&](int32_t a, int32_t b) {
    const A x = rank_of(u[a]), y = rank_of(u[b]);
    return x != y ? x > y : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
  std::copy_n(order.begin(), k, ids);
  std::sort(ids, ids + k);
}

/// sum of x[i] y[i], in the canonical lanes.
template <class A, class X, class Y>
A dot(const X* x, const Y* y, int64_t count) {
  return lane_sum<A>(0, count,
                     [&](A lane, int64_t i) { return std::fma(A(load(x[i])), A(load(y[i])), lane); });
}

template <class A>
A sigmoid(A u) {
  return A(1) / (A(1) + exponential(-u));
}

}  // namespace

void choose_experts(Ctx& ctx, Tensor ids, Tensor weights, CTensor logits, int64_t num_experts,
                    bool normalize) {
  dispatch_accumulate(logits.dtype, [&](auto a) {
    using A = decltype(a);
    const int64_t k = ids.dim(1), columns = logits.dim(1);
    int32_t* const chosen = ids.as<int32_t>();
    A* const w = weights.as<A>();
    const A* const u = logits.as<A>();
    parallel_ranges(ctx.threads, ids.dim(0), row_grain(num_experts), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const A* const row = u + t * columns;
        choose_largest(chosen + t * k, row, num_experts, k);
        const Softmax<A> softmax(row, num_experts);
        A sum = 0;
        for (int64_t j = 0; j < k; ++j) sum += w[t * k + j] = softmax.of(row[chosen[t * k + j]]);
        for (int64_t j = 0; normalize && j < k; ++j) w[t * k + j] /= sum;
      }
    });
  });
}

void choose_experts_backward(Ctx& ctx, Tensor dlogits, CTensor dweights, CTensor ids, CTensor weights,
                             CTensor logits, int64_t num_experts, bool normalize) {
  dispatch_accumulate(logits.dtype, [&](auto a) {
    using A = decltype(a);
    const int64_t k = ids.dim(1), columns = logits.dim(1);
    const int32_t* const chosen = ids.as<int32_t>();
    const A *const dw = dweights.as<A>(), *const w = weights.as<A>(), *const u = logits.as<A>();
    A* const du = dlogits.as<A>();
    parallel_ranges(ctx.threads, ids.dim(0), row_grain(num_experts), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const A *const p = w + t * k, *const dp = dw + t * k;
        A mean = 0;
        for (int64_t j = 0; j < k; ++j) mean = std::fma(dp[j], p[j], mean);
        A* const to = du + t * columns;
        const Softmax<A> softmax(u + t * columns, num_experts);
        for (int64_t e = 0; e < num_experts; ++e)
          to[e] = normalize ? A(0) : softmax.of(u[t * columns + e]) * (A(0) - mean);
        for (int64_t j = 0; j < k; ++j) to[chosen[t * k + j]] = p[j] * (dp[j] - mean);
      }
    });
  });
}

/// One piece of work: it is little beside the products.
void sort_by_expert(Ctx& ctx, Tensor offsets, Tensor tokens, Tensor places, CTensor ids) {
  const int64_t num_experts = offsets.dim(0) - 1, rows = ids.size(), k = ids.dim(1);
  int32_t *const begin = offsets.as<int32_t>(), *const of = tokens.as<int32_t>(),
                 *const at = places.as<int32_t>();
  const int32_t* const chosen = ids.as<int32_t>();
  parallel_for(ctx.threads, 1, [&](int64_t) {
    std::fill(begin, begin + num_experts + 1, 0);
    for (int64_t i = 0; i < rows; ++i) ++begin[chosen[i] + 1];
    for (int64_t e = 0; e < num_experts; ++e) begin[e + 1] += begin[e];
    std::vector<int32_t> next(begin, begin + num_experts);
    for (int64_t i = 0; i < rows; ++i) {
      const int32_t row = next[static_cast<size_t>(chosen[i])]++;
      at[i] = row;
      of[row] = static_cast<int32_t>(i / k);
    }
  });
}

/// One piece of work, in order of the tokens.
void add_router_sums(Ctx& ctx, Tensor sums, CTensor logits, CTensor offsets) {
  dispatch_accumulate(logits.dtype, [&](auto a) {
    using A = decltype(a);
    const int64_t num_experts = offsets.dim(0) - 1, columns = logits.dim(1);
    const int32_t* const begin = offsets.as<int32_t>();
    const A* const u = logits.as<A>();
    A* const to = sums.as<A>();
    parallel_for(ctx.threads, 1, [&](int64_t) {
      A entropy = 0;
      for (int64_t t = 0; t < logits.dim(0); ++t) {
        const A* const row = u + t * columns;
        const Softmax<A> softmax(row, num_experts);
        const A mean = lane_sum<A>(0, num_experts, [&](A lane, int64_t e) {
          return std::fma(softmax.of(row[e]), row[e] - softmax.largest, lane);
        });
        entropy += std::log(softmax.sum) - mean;
      }
      for (int64_t e = 0; e < num_experts; ++e) to[e] += static_cast<A>(begin[e + 1] - begin[e]);
      to[num_experts] += entropy;
    });
  });
}

void combine_experts(Ctx& ctx, Tensor y, CTensor x, CTensor places, CTensor weights, CTensor shared,
                     CTensor logits) {
  dispatch_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = y.dim(1), k = places.dim(1);
    const int32_t* const at = places.as<int32_t>();
    const A* const w = weights.as<A>();
    const S* const rows = x.as<S>();
    const S* const beside = shared.empty() ? nullptr : shared.as<S>();
    S* const to = y.as<S>();
    parallel_ranges(ctx.threads, y.dim(0), row_grain(k * width), [&](int64_t begin, int64_t end) {
      std::vector<A> sums(static_cast<size_t>(width));
      for (int64_t t = begin; t < end; ++t) {
        std::fill(sums.begin(), sums.end(), A(0));
        const auto add = [&](A weight, const S* row) {
#pragma omp simd
          for (int64_t i = 0; i < width; ++i) sums[i] = std::fma(weight, load(row[i]), sums[i]);
        };
        for (int64_t j = 0; j < k; ++j) add(w[t * k + j], rows + at[t * k + j] * width);
        if (beside) add(sigmoid(logits.as<A>()[(t + 1) * logits.dim(1) - 1]), beside + t * width);
        for (int64_t i = 0; i < width; ++i) to[t * width + i] = store<S>(sums[i]);
      }
    });
  });
}

void weigh_expert_rows_backward(Ctx& ctx, Tensor da, Tensor wa, Tensor dweights, CTensor dweighted, CTensor a,
                                CTensor places, CTensor weights) {
  dispatch_storage(a.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = a.dim(1);
    const int32_t* const at = places.as<int32_t>();
    const A* const w = weights.as<A>();
    A* const dw = dweights.as<A>();
    const S *const from = dweighted.as<S>(), *const made = a.as<S>();
    S *const to = da.as<S>(), *const weighed = wa.as<S>();
    parallel_ranges(ctx.threads, places.size(), row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = at[i] * width;
        dw[i] = dot<A>(from + row, made + row, width);
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
          to[row + j] = store<S>(w[i] * load(from[row + j]));
          weighed[row + j] = store<S>(w[i] * load(made[row + j]));
        }
      }
    });
  });
}

void shared_expert_backward(Ctx& ctx, Tensor dshared, Tensor dlogits, CTensor dy, CTensor shared,
                            CTensor logits) {
  dispatch_storage(dy.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = dy.dim(1), columns = logits.dim(1);
    const A* const u = logits.as<A>();
    A* const du = dlogits.as<A>();
    const S *const from = dy.as<S>(), *const made = shared.as<S>();
    S* const to = dshared.as<S>();
    parallel_ranges(ctx.threads, dy.dim(0), row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t gate = (t + 1) * columns - 1;
        const A open = sigmoid(u[gate]);
        du[gate] = dot<A>(from + t * width, made + t * width, width) * (open * (A(1) - open));
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) to[t * width + i] = store<S>(open * load(from[t * width + i]));
      }
    });
  });
}

void sum_expert_rows(Ctx& ctx, Tensor dx, CTensor rows, CTensor places, CTensor router, CTensor shared) {
  dispatch_storage(dx.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t width = dx.dim(1), k = places.dim(1);
    const int32_t* const at = places.as<int32_t>();
    const S* const from = rows.as<S>();
    const A* const routed = router.as<A>();
    const S* const beside = shared.empty() ? nullptr : shared.as<S>();
    S* const to = dx.as<S>();
    parallel_ranges(ctx.threads, dx.dim(0), row_grain(k * width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t i = 0; i < width; ++i) {
          A sum = load(from[at[t * k] * width + i]);
          for (int64_t j = 1; j < k; ++j) sum += load(from[at[t * k + j] * width + i]);
          sum += routed[t * width + i];
          if (beside) sum += load(beside[t * width + i]);
          to[t * width + i] = store<S>(sum);
        }
    });
  });
}

}  // namespace temper::cpu
