// What routers have of their own: counts of choices, and losses on their logits. The losses of rows are
// summed in pieces of as many rows for any number of threads.

#include <cmath>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"
#include "kernels/cpu/softmax.h"

namespace temper::cpu {
namespace {

constexpr int64_t kRowsOfPiece = 64;

/// f(float{}) or f(double{}).
template <class F>
void with_accumulate(DType t, F&& f) {
  if (t == DType::f64)
    f(double{});
  else
    f(float{});
}

template <class A>
struct Losses {
  A balance = 0, z = 0;
};

/// A row's losses; adds their gradient.
template <class A>
Losses<A> add_row(A* du, const A* u, const A* slopes, int64_t num_experts, A z) {
  const Softmax<A> softmax(u, num_experts);
  const A mean = lane_sum<A>(0, num_experts,
                             [&](A lane, int64_t e) { return std::fma(slopes[e], softmax.of(u[e]), lane); });
  const A lse = softmax.largest + std::log(softmax.sum), pull = A(2) * z * lse - mean;
  for (int64_t e = 0; e < num_experts; ++e) du[e] = std::fma(softmax.of(u[e]), slopes[e] + pull, du[e]);
  return {mean, z * lse * lse};
}

}  // namespace

/// One piece of work: it is little beside the products.
void add_router_counts(Ctx& ctx, Tensor counts, CTensor ids, CTensor begins) {
  const int64_t num_experts = counts.dim(1), k = ids.dim(1);
  const int32_t *const begin = begins.as<int32_t>(), *const chosen = ids.as<int32_t>();
  if (!ctx.threads.count_only) check_indices(chosen, ids.size(), num_experts, "expert");
  int32_t* const to = counts.as<int32_t>();
  parallel_for(ctx.threads, 1, [&](int64_t) {
    for (int64_t s = 0; s < counts.dim(0); ++s)
      for (int64_t i = begin[s] * k; i < begin[s + 1] * k; ++i) ++to[s * num_experts + chosen[i]];
  });
}

/// One piece of work, too.
void count_other_routes(Ctx& ctx, Tensor count, CTensor ids, CTensor given) {
  const int64_t k = ids.dim(1);
  const int32_t *const own = ids.as<int32_t>(), *const theirs = given.as<int32_t>();
  int32_t* const to = count.as<int32_t>();
  parallel_for(ctx.threads, 1, [&](int64_t) {
    for (int64_t i = 0; i < ids.size(); ++i) {
      const int32_t* const row = own + i / k * k;
      if (theirs[i] >= 0) *to += std::find(row, row + k, theirs[i]) == row + k;
    }
  });
}

void follow_routes(Ctx& ctx, Tensor ids, Tensor weights, CTensor given, CTensor logits, int64_t num_experts,
                   bool normalize) {
  with_accumulate(logits.dtype, [&](auto a) {
    using A = decltype(a);
    const int64_t k = ids.dim(1), columns = logits.dim(1);
    parallel_ranges(ctx.threads, ids.dim(0), row_grain(num_experts), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int32_t* const from = given.as<int32_t>() + t * k;
        if (from[0] < 0) continue;
        const A* const u = logits.as<A>() + t * columns;
        A* const w = weights.as<A>() + t * k;
        const Softmax<A> softmax(u, num_experts);
        A sum = 0;
        for (int64_t j = 0; j < k; ++j) sum += w[j] = softmax.of(u[ids.as<int32_t>()[t * k + j] = from[j]]);
        for (int64_t j = 0; normalize && j < k; ++j) w[j] /= sum;
      }
    });
  });
}

void router_losses_backward(Ctx& ctx, Tensor dlogits, Tensor losses, CTensor logits, CTensor slopes,
                            CTensor begins, double z) {
  if (ctx.threads.count_only) return;
  with_accumulate(logits.dtype, [&](auto a) {
    using A = decltype(a);
    const int64_t num_experts = slopes.dim(1), columns = logits.dim(1), stretches = slopes.dim(0);
    const int32_t* const begin = begins.as<int32_t>();
    const int64_t first = begin[0], rows = begin[stretches] - first;
    std::vector<Losses<A>> of_piece(static_cast<size_t>((rows + kRowsOfPiece - 1) / kRowsOfPiece));
    parallel_ranges(ctx.threads, rows, kRowsOfPiece, [&](int64_t from, int64_t end) {
      Losses<A>& sum = of_piece[static_cast<size_t>(from / kRowsOfPiece)];
      int64_t s = std::upper_bound(begin, begin + stretches, static_cast<int32_t>(first + from)) - begin - 1;
      for (int64_t t = first + from; t < first + end; ++t) {
        while (t >= begin[s + 1]) ++s;
        const Losses<A> row = add_row(dlogits.as<A>() + t * columns, logits.as<A>() + t * columns,
                                      slopes.as<A>() + s * num_experts, num_experts, static_cast<A>(z));
        sum.balance += row.balance, sum.z += row.z;
      }
    });
    for (const Losses<A>& piece : of_piece) losses.as<A>()[0] += piece.balance, losses.as<A>()[1] += piece.z;
  });
}

}  // namespace temper::cpu
