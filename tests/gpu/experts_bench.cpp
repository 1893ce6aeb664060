// Speed of layers of experts on one GPU, random data, in bursts timed by events: grouped products beside the
// best of cuBLASLt's algorithms for one dense product of as many operations, with tokens spread evenly and as
// 1 / rank; few tokens, in shares of the read rate; rows that are gathered and combined, in shares of a copy.
// The shapes are those of Qwen3-30B-A3B. Prints Markdown rows.

#include <functional>
#include <limits>

#include "kernels/cuda/linear_lt.h"
#include "kernels/cuda/linear_trial.h"
#include "src/core/cuda.h"
#include "src/ops/rows.h"
#include "tests/gpu/burst_times.h"
#include "tests/gpu/read_rate.h"
#include "tests/gpu/routings.h"

namespace temper {
namespace {

using cuda::Product;
using cuda::ProductKind;
constexpr int64_t kExperts = 128, kChoices = 8, kHidden = 2048, kInner = 768, kTokens = 8192;

double flops_of(const Product& p) {
  return 2.0 * static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
}

Tensor normal(Ctx& c, DType dtype, std::initializer_list<int64_t> shape, double scale, int64_t seed) {
  const Tensor t = c.scratch.make(shape, dtype);
  NormalBlock().fill(c.device, t, scale, 0, seed);
  return t;
}

/// TFLOP/s of the dense product, by the best of all algorithms.
double dense_rate(Ctx& c, const Product& shape) {
  cuda::Trial trial(c.lane, shape);
  const cuda::LtCall call(cuda::libraries_of(c), trial.product());
  double best = std::numeric_limits<double>::infinity();
  for (const cuda::Candidate& one : call.all(/*in_parts=*/true))
    best = std::min(best, milliseconds(c.lane, 3, [&] { call.run(one.algorithm); }));
  return flops_of(shape) / best * 1e-9;
}

struct Rates {
  double forward, input, weight, weight_added;
};

/// The dense products of as many operations: all rows with the weights of one expert.
Rates dense_rates(Ctx& c, int64_t R, int64_t N, int64_t K) {
  ArenaScope scope(c.scratch);
  const Tensor w = normal(c, DType::bf16, {N, K}, 0.02, 1);
  const Product forward{nullptr, nullptr, w.raw(), nullptr, R, N, K, N, DType::bf16, DType::bf16};
  Product input = forward, weight{nullptr,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  N,
                                  K,
                                  R,
                                  K,
                                  DType::bf16,
                                  DType::f32,
                                  ProductKind::weight_gradient};
  input.kind = ProductKind::input_gradient;
  input.N = input.pitch = K;
  input.K = N;
  Rates rates{dense_rate(c, forward), dense_rate(c, input), dense_rate(c, weight), 0};
  weight.add = true;
  rates.weight_added = dense_rate(c, weight);
  return rates;
}

void bench_products(Ctx& c, const char* name, const Ids& ids, int64_t N, int64_t K, const Rates& dense) {
  ArenaScope scope(c.scratch);
  const Routing r(c, ids, kChoices, kExperts);
  const Tensor x = normal(c, DType::bf16, {r.R, K}, 0.5, 2), dy = normal(c, DType::bf16, {r.R, N}, 0.5, 3),
               w = normal(c, DType::bf16, {kExperts * N, K}, 0.02, 4),
               y = c.scratch.make({r.R, N}, DType::bf16), dx = c.scratch.make({r.R, K}, DType::bf16),
               dw = c.scratch.make({kExperts * N, K}, DType::f32);
  device::fill(c.lane, dw.raw(), 0, dw.bytes());
  const double flops = 2.0 * static_cast<double>(r.R) * static_cast<double>(N * K);
  const auto row = [&](const char* what, double beside, const std::function<void()>& run) {
    const double ms = milliseconds(c.lane, 4, run), rate = flops / ms * 1e-9;
    std::printf("| %s of %ld x %ld, %s | %.3f ms | %.0f TFLOP/s | dense %.0f | %.2f |\n", what, N, K, name,
                ms, rate, beside, rate / beside);
  };
  row("forward", dense.forward, [&] { expert_linear_forward(c, y, x, w, r.offsets); });
  row("dx", dense.input, [&] { expert_linear_backward_input(c, dx, dy, w, r.offsets); });
  row("dW, first", dense.weight,
      [&] { expert_linear_backward_weight(c, dw, dy, x, r.offsets, GradWrite::first); });
  row("dW, added", dense.weight_added,
      [&] { expert_linear_backward_weight(c, dw, dy, x, r.offsets, GradWrite::add); });
}

/// Routings take turns, so that the cache does not hold the weights of the experts that are hit.
void bench_decode(Ctx& c, int64_t T, int64_t N, int64_t K, double read) {
  constexpr int kRoutings = 16;
  ArenaScope scope(c.scratch);
  const Tensor w = normal(c, DType::bf16, {kExperts * N, K}, 0.02, 4),
               x = normal(c, DType::bf16, {T * kChoices, K}, 0.5, 2),
               y = c.scratch.make({T * kChoices, N}, DType::bf16);
  std::vector<Routing> routings;
  double bytes = 0;
  for (uint64_t seed = 0; seed < kRoutings; ++seed) {
    routings.emplace_back(c, drawn_choices(T, kChoices, even_weights(kExperts), seed), kChoices, kExperts);
    for (size_t e = 0; e < kExperts; ++e)
      bytes += routings.back().begin[e] < routings.back().begin[e + 1] ? static_cast<double>(N * K * 2) : 0;
  }
  const double ms = milliseconds(c.lane, 4, [&] {
    for (const Routing& r : routings) expert_linear_forward(c, y, x, w, r.offsets);
  });
  std::printf("| forward of %ld x %ld, %ld tokens | %.1f us | %.0f GB/s | %.0f %% of the read rate |\n", N, K,
              T, ms * 1e3 / kRoutings, bytes / ms * 1e-6, 100 * bytes / ms * 1e3 / read);
}

void bench_rows(Ctx& c, const char* name, const Ids& ids, double copy) {
  ArenaScope scope(c.scratch);
  const Routing r(c, ids, kChoices, kExperts);
  const Tensor x = normal(c, DType::bf16, {kTokens, kHidden}, 0.5, 2),
               in = normal(c, DType::bf16, {r.R, kHidden}, 0.5, 3),
               out = normal(c, DType::bf16, {kTokens, kHidden}, 0.5, 4),
               a = normal(c, DType::bf16, {r.R, kInner}, 0.5, 5),
               da = normal(c, DType::bf16, {r.R, kInner}, 0.5, 6),
               router = normal(c, DType::f32, {kTokens, kHidden}, 0.5, 7),
               logits = normal(c, DType::f32, {kTokens, kExperts}, 1, 8),
               weights = c.scratch.make({kTokens, kChoices}, DType::f32),
               dweights = c.scratch.make({kTokens, kChoices}, DType::f32),
               chosen = c.scratch.make({kTokens, kChoices}, DType::i32);
  const auto row = [&](const char* what, int64_t bytes, const std::function<void()>& run) {
    const double ms = milliseconds(c.lane, 4, run), rate = static_cast<double>(bytes) / ms * 1e3;
    std::printf("| %s, %s | %.1f us | %.0f GB/s | %.0f %% of a copy |\n", what, name, ms * 1e3, rate * 1e-9,
                100 * rate / copy);
  };
  row("choose", logits.bytes(), [&] { choose_experts(c, chosen, weights, logits, kExperts, true); });
  row("sort", 3 * r.ids.bytes(), [&] { sort_by_expert(c, r.offsets, r.tokens, r.places, r.ids); });
  row("gather", 2 * in.bytes(), [&] { gather_rows(c, in, x, r.tokens); });
  row("combine", in.bytes() + out.bytes(), [&] { combine_experts(c, out, in, r.places, weights, {}, {}); });
  row("weigh backward", 4 * a.bytes(),
      [&] { weigh_expert_rows_backward(c, da, a, dweights, da, a, r.places, weights); });
  row("sum of rows", in.bytes() + out.bytes() + router.bytes(),
      [&] { sum_expert_rows(c, out, in, r.places, router, {}); });
}

/// As many tokens for each expert.
Ids balanced_choices() {
  Ids ids;
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t j = 0; j < kChoices; ++j)
      ids.push_back(static_cast<int32_t>(t % (kExperts / kChoices) + j * (kExperts / kChoices)));
  return ids;
}

}  // namespace
}  // namespace temper

int main() {
  using namespace temper;
  if (device::find_gpus().gpus.empty()) return 1;
  device::select_gpu(0);
  const double read = read_rate(), copy = copy_rate();
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  std::printf("%s, %ld tokens, %ld of %ld experts\n", device::gpu_name().c_str(), kTokens, kChoices,
              kExperts);
  const Ids balanced = balanced_choices(), zipf = drawn_choices(kTokens, kChoices, zipf_weights(kExperts), 1);
  for (const auto& [N, K] :
       std::vector<std::pair<int64_t, int64_t>>{{2 * kInner, kHidden}, {kHidden, kInner}}) {
    const Rates dense = dense_rates(c, kTokens * kChoices, N, K);
    bench_products(c, "balanced", balanced, N, K, dense);
    bench_products(c, "1 / rank", zipf, N, K, dense);
    for (const int64_t T : {1, 16, 64, 256}) bench_decode(c, T, N, K, read);
  }
  bench_rows(c, "balanced", balanced, copy);
  bench_rows(c, "1 / rank", zipf, copy);
  return 0;
}
