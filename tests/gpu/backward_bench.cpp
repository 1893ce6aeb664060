// Speed of the backward products on one GPU, random data, timed by events: gradients of inputs and weights at
// 8,192 tokens beside the best of all algorithms of cuBLASLt, and the head. Prints Markdown rows.

#include <functional>
#include <limits>

#include "kernels/cuda/linear_lt.h"
#include "kernels/cuda/linear_trial.h"
#include "src/core/cuda.h"
#include "src/ops/head.h"
#include "src/ops/linear.h"
#include "tests/gpu/burst_times.h"
#include "tests/gpu/gpu_support.h"

namespace temper {
namespace {

using cuda::Product;
using cuda::ProductKind;
constexpr int64_t kTokens = 8192;

void bench_product(Ctx& c, const char* name, const Product& shape) {
  cuda::Trial trial(c.lane, shape);
  const Product& p = trial.product();
  const double ours = milliseconds(c.lane, 4, [&] { cuda::multiply(c, p); });
  double best = std::numeric_limits<double>::infinity();
  const cuda::LtCall call(cuda::libraries_of(c), p);
  for (const cuda::Candidate& one : call.all(/*in_parts=*/true))
    best = std::min(best, milliseconds(c.lane, 4, [&] { call.run(one.algorithm); }));
  const double flops = 2.0 * static_cast<double>(p.M) * static_cast<double>(p.N) * static_cast<double>(p.K);
  std::printf("| %s | %.3f ms | %.0f TFLOP/s | best of all algorithms %.0f |\n", name, ours,
              flops / ours * 1e-9, flops / best * 1e-9);
}

void bench_layer(Ctx& c, int64_t N, int64_t K) {
  ArenaScope scope(c.scratch);
  const Tensor w = c.scratch.make({N, K}, DType::bf16);
  NormalBlock().fill(c.device, w, 0.02, 0, 1);
  const auto name = [&](const char* what) { return fmt::format("{} of {} x {}", what, N, K); };
  const Product dx{nullptr,
                   nullptr,
                   w.raw(),
                   nullptr,
                   kTokens,
                   K,
                   N,
                   K,
                   DType::bf16,
                   DType::bf16,
                   ProductKind::input_gradient};
  Product dw{nullptr,
             nullptr,
             nullptr,
             nullptr,
             N,
             K,
             kTokens,
             K,
             DType::bf16,
             DType::f32,
             ProductKind::weight_gradient};
  bench_product(c, name("dx").c_str(), dx);
  bench_product(c, name("dW, first").c_str(), dw);
  dw.add = true;
  bench_product(c, name("dW, added").c_str(), dw);
  dw.K = kTokens - 3;
  bench_product(c, name("dW, added, 8,189 tokens").c_str(), dw);
}

void bench_head(Ctx& c, int64_t width) {
  constexpr int64_t kVocabulary = 151936;
  ArenaScope scope(c.scratch);
  const Tensor hidden = c.scratch.make({kTokens, width}, DType::bf16),
               dhidden = c.scratch.make({kTokens, width}, DType::bf16),
               w = c.scratch.make({kVocabulary, width}, DType::bf16),
               dw = c.scratch.make({kVocabulary, width}, DType::f32),
               a = c.scratch.make({kTokens}, DType::f32), b = c.scratch.make({kTokens}, DType::f32),
               logprob = c.scratch.make({kTokens}, DType::f32),
               entropy = c.scratch.make({kTokens}, DType::f32), lse = c.scratch.make({kTokens}, DType::f32);
  const NormalBlock block;
  block.fill(c.device, hidden, 1, 0, 1);
  block.fill(c.device, w, 3 / std::sqrt(static_cast<double>(width)), 0, 2);
  block.fill(c.device, a, 1, 0, 3);
  block.fill(c.device, b, 0.01, 0, 4);
  device::fill(c.lane, dw.raw(), 0, dw.bytes());
  const std::vector<int32_t> ids = random_ids(kTokens, kVocabulary, 5);
  const CTensor targets = to_device(c, view_of(ids.data(), {kTokens}));
  const double product = 2.0 * static_cast<double>(kTokens) * static_cast<double>(kVocabulary * width);
  const double forward =
      milliseconds(c.lane, 1, [&] { logprob_forward(c, logprob, entropy, lse, hidden, w, targets, 1.0); });
  const double backward = milliseconds(
      c.lane, 1, [&] { logprob_backward(c, dhidden, dw, a, b, hidden, w, targets, lse, entropy, 1.0); });
  std::printf("| head forward, width %ld | %.1f ms | %.0f TFLOP/s |\n", width, forward,
              product / forward * 1e-9);
  std::printf("| head backward, width %ld | %.1f ms | %.0f TFLOP/s |\n", width, backward,
              3 * product / backward * 1e-9);
}

}  // namespace
}  // namespace temper

int main() {
  using namespace temper;
  if (device::find_gpus().gpus.empty()) return 1;
  device::select_gpu(0);
  Backend gpu(Device::cuda);
  Ctx& c = gpu.ctx();
  std::printf("%s, %ld tokens\n", device::gpu_name().c_str(), kTokens);
  for (const auto& [N, K] : std::vector<std::pair<int64_t, int64_t>>{{6144, 4096},
                                                                     {4096, 4096},
                                                                     {24576, 4096},
                                                                     {4096, 12288},
                                                                     {4096, 2048},
                                                                     {2048, 2048},
                                                                     {12288, 2048},
                                                                     {2048, 6144}})
    bench_layer(c, N, K);
  for (const int64_t width : {4096, 2048}) bench_head(c, width);
  return 0;
}
