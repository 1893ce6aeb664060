// Speed of the linear kernels on one core, against the multiply-add peak and the read bandwidth of the same
// core, both measured in the same run. Prints one line per shape; needs no input.

#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "kernels/cpu/linear_vec.h"
#include "src/ops/linear.h"

namespace temper {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Best time of several calls, within about `budget` seconds.
template <class F>
double best_seconds(double budget, F&& f) {
  double best = 1e30;
  const double end = now() + budget;
  for (int i = 0; i < 3 || (now() < end && i < 2000); ++i) {
    const double start = now();
    f();
    best = std::min(best, now() - start);
  }
  return best;
}

/// FLOP/s of twenty independent chains of multiply-adds in registers.
double measure_peak() {
  using V = cpu::Vec<float>;
  constexpr int64_t kChains = 10, kSteps = 1 << 20;
  const double seconds = best_seconds(0.5, [] {
    V acc[kChains];
    for (V& a : acc) a = V::all(1.0f);
    V x = V::all(0.999f), y = V::all(1e-3f);
    for (int64_t i = 0; i < kSteps; ++i) {
      cpu::keep_in_register(x);
#pragma GCC unroll 16
      for (V& a : acc) a = fma(a, x, y);
    }
    float sink[V::kWidth];
    for (int64_t i = 1; i < kChains; ++i) acc[0] = acc[0] + acc[i];
    acc[0].store(sink);
    if (sink[0] == 0.5f) std::puts("");
  });
  return 2.0 * kChains * kSteps * V::kWidth / seconds;
}

/// Bytes per second of a plain sum over memory that no cache holds.
double measure_bandwidth(const std::vector<float>& memory) {
  using V = cpu::Vec<float>;
  const int64_t count = static_cast<int64_t>(memory.size()) / (8 * V::kWidth) * (8 * V::kWidth);
  const double seconds = best_seconds(1.0, [&] {
    V acc[8];
    for (V& a : acc) a = V::zero();
    for (int64_t i = 0; i < count; i += 8 * V::kWidth)
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) acc[j] = acc[j] + V::load(memory.data() + i + j * V::kWidth);
    float sink[V::kWidth];
    for (int j = 1; j < 8; ++j) acc[0] = acc[0] + acc[j];
    acc[0].store(sink);
    if (sink[0] == 0.5f) std::puts("");
  });
  return static_cast<double>(count) * 4 / seconds;
}

template <class S>
std::vector<S> random_values(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<S> values(static_cast<size_t>(count));
  for (S& v : values) v = S(static_cast<float>(engine()) * 0x1p-32f - 0.5f);
  return values;
}

struct Shape {
  int64_t M, N, K;
};

template <class S>
void bench_products(const char* name, const Shape& s, double peak) {
  Arena arena;
  Ctx c{arena};
  const auto x = random_values<S>(s.M * s.K, 1), w = random_values<S>(s.N * s.K, 2),
             dy = random_values<S>(s.M * s.N, 3);
  std::vector<S> y(dy.size()), dx(x.size());
  std::vector<float> dw(w.size());
  const CTensor xt = view_of(x.data(), {s.M, s.K}), wt = view_of(w.data(), {s.N, s.K});
  const CTensor dyt = view_of(dy.data(), {s.M, s.N});
  const double flop = 2.0 * static_cast<double>(s.M * s.N * s.K);
  const auto report = [&](const char* what, double seconds) {
    std::printf("%-5s %-8s %6ld %6ld %6ld  %7.1f GFLOP/s  %5.1f %% of peak\n", name, what, s.M, s.N, s.K,
                flop / seconds * 1e-9, 100 * flop / seconds / peak);
  };
  report("forward", best_seconds(0.3, [&] {
           linear_forward(c, make_tensor(y.data(), kDTypeOf<S>, {s.M, s.N}), xt, wt, {});
         }));
  report("input", best_seconds(0.3, [&] {
           linear_backward_input(c, make_tensor(dx.data(), kDTypeOf<S>, {s.M, s.K}), dyt, wt);
         }));
  report("weight", best_seconds(0.3, [&] {
           linear_backward_weight(c, make_tensor(dw.data(), DType::f32, {s.N, s.K}), dyt, xt);
         }));
}

template <class S>
void bench_decode(const char* name, int64_t M, int64_t K, const std::vector<S>& w, double bandwidth) {
  Arena arena;
  Ctx c{arena};
  const int64_t N = static_cast<int64_t>(w.size()) / K;
  const auto x = random_values<S>(M * K, 1);
  std::vector<S> y(static_cast<size_t>(M * N));
  const double seconds = best_seconds(0.5, [&] {
    linear_forward(c, make_tensor(y.data(), kDTypeOf<S>, {M, N}), view_of(x.data(), {M, K}),
                   view_of(w.data(), {N, K}), {});
  });
  const double rate = static_cast<double>(N * K) * sizeof(S) / seconds;
  std::printf("%-5s decode   %6ld %6ld %6ld  %7.1f GB/s     %5.1f %% of read bandwidth\n", name, M, N, K,
              rate * 1e-9, 100 * rate / bandwidth);
}

int run() {
  const auto memory = random_values<float>(int64_t{64} << 20, 4);
  const double peak = measure_peak(), bandwidth = measure_bandwidth(memory);
  std::printf("one core: %.1f GFLOP/s multiply-add peak, %.1f GB/s read bandwidth\n", peak * 1e-9,
              bandwidth * 1e-9);
  std::printf("dtype product       M      N      K\n");
  for (const Shape& s :
       {Shape{16, 3072, 1024}, Shape{64, 1024, 1024}, Shape{64, 1024, 3072}, Shape{256, 3072, 1024},
        Shape{512, 1024, 1024}, Shape{1000, 896, 4864}, Shape{512, 4096, 4096}}) {
    bench_products<float>("fp32", s, peak);
    bench_products<bf16>("bf16", s, peak);
  }
  const auto narrow = random_values<bf16>(int64_t{64} << 20, 5);
  for (const int64_t K : {1024, 4096})
    for (const int64_t M : {1, 2, 4, 8}) {
      bench_decode("fp32", M, K, memory, bandwidth);
      bench_decode("bf16", M, K, narrow, bandwidth);
    }
  return 0;
}

}  // namespace
}  // namespace temper

int main() { return temper::run(); }
