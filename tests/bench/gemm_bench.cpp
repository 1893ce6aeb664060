// Speed of the linear kernels on one core, against the multiply-add peak and the read rate of the same core.
// Prints one line per shape; needs no input.
//
// "of peak": see measure.h. "of roofline": the time that the peak or, where it is longer, memory allows, over
// the time taken. Memory is x, w and y once each, at the rate of a plain sum over as many bytes, and dW read
// and written, at the rate of an addition in place.

#include <algorithm>
#include <cstdio>
#include <random>

#include "src/ops/backend.h"
#include "src/ops/linear.h"
#include "tests/bench/measure.h"

namespace temper {
namespace {

using namespace bench;

int64_t pass_floats(int64_t bytes) { return std::max<int64_t>(1, bytes / 4 / kPassRow) * kPassRow; }

/// Bytes per second of a plain sum over `bytes` of memory read again and again.
double read_rate(const float* memory, int64_t bytes) {
  const int64_t count = pass_floats(bytes);
  return static_cast<double>(count) * 4 / fast_seconds(0.2, [&] { sum_pass(memory, count); });
}

/// Seconds of an addition in place to `bytes` of memory, again and again.
double update_seconds(float* memory, int64_t bytes) {
  using V = cpu::Vec<float>;
  if (bytes == 0) return 0;
  const int64_t count = pass_floats(bytes);
  const V step = V::all(1e-3f);
  const double seconds = fast_seconds(0.2, [&] {
    for (int64_t i = 0; i < count; i += kPassRow)
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        float* x = memory + i + j * V::kWidth;
        (V::load(x) + step).store(x);
      }
  });
  return seconds * static_cast<double>(bytes) / (static_cast<double>(count) * 4);
}

/// Memory as the program allocates it.
template <class S>
Tensor random_tensor(Arena& arena, std::initializer_list<int64_t> shape, uint32_t seed) {
  std::mt19937 engine(seed);
  Tensor t = arena.make(shape, kDTypeOf<S>);
  S* values = t.as<S>();
  for (int64_t i = 0; i < t.bytes() / static_cast<int64_t>(sizeof(S)); ++i)
    values[i] = S(static_cast<float>(engine()) * 0x1p-32f - 0.5f);
  return t;
}

struct Shape {
  int64_t M, N, K;
};

/// What a product reads, and what it adds to in place.
struct Traffic {
  int64_t read_bytes, update_bytes;
};

/// One line: f timed by turns with the multiply-add chains, its traffic against plain passes over `memory`.
template <class F>
void bench_product(const char* dtype, const char* product, const Shape& s, const Traffic& traffic,
                   float* memory, F&& f) {
  const double flop = 2.0 * static_cast<double>(s.M * s.N * s.K);
  const Speed speed = speed_of(flop, {}, f);
  const double peak = speed.peak(flop);
  const double bytes_seconds =
      static_cast<double>(traffic.read_bytes) / read_rate(memory, traffic.read_bytes) +
      update_seconds(memory, traffic.update_bytes);
  const double bound = std::max(flop / peak, bytes_seconds);
  std::printf("%-5s %-8s %6ld %6ld %6ld  %6.1f of %6.1f GFLOP/s  %5.1f %% of peak  %5.1f %% of roofline\n",
              dtype, product, s.M, s.N, s.K, flop / speed.seconds * 1e-9, peak * 1e-9, 100 * speed.share,
              100 * bound / speed.seconds);
}

template <class S>
void bench_products(const char* dtype, const Shape& s, float* memory) {
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  Arena arena;
  const Tensor x = random_tensor<S>(arena, {s.M, s.K}, 1), w = random_tensor<S>(arena, {s.N, s.K}, 2),
               dy = random_tensor<S>(arena, {s.M, s.N}, 3);
  const Tensor y = arena.zeros({s.M, s.N}, kDTypeOf<S>), dx = arena.zeros({s.M, s.K}, kDTypeOf<S>),
               dw = arena.zeros({s.N, s.K}, DType::f32);
  bench_product(dtype, "forward", s, {x.bytes() + w.bytes() + y.bytes(), 0}, memory,
                [&] { linear_forward(c, y, x, w, {}); });
  bench_product(dtype, "dx", s, {dy.bytes() + w.bytes() + dx.bytes(), 0}, memory,
                [&] { linear_backward_input(c, dx, dy, w); });
  bench_product(dtype, "dW", s, {dy.bytes() + x.bytes(), dw.bytes()}, memory,
                [&] { linear_backward_weight(c, dw, dy, x, GradWrite::add); });
}

template <class S>
void bench_decode(const char* name, int64_t M, int64_t K, const Tensor& memory, double bandwidth) {
  Backend backend(Device::cpu);
  Ctx& c = backend.ctx();
  Arena arena;
  const int64_t N = memory.bytes() / static_cast<int64_t>(sizeof(S)) / K;
  const Tensor x = random_tensor<S>(arena, {M, K}, 1), y = arena.zeros({M, N}, kDTypeOf<S>);
  const CTensor w = view_of(memory.as<S>(), {N, K});
  const double seconds = fast_seconds(0.5, [&] { linear_forward(c, y, x, w, {}); });
  const double rate = static_cast<double>(memory.bytes()) / seconds;
  std::printf("%-5s decode   %6ld %6ld %6ld  %7.1f GB/s     %5.1f %% of read bandwidth\n", name, M, N, K,
              rate * 1e-9, 100 * rate / bandwidth);
}

int run() {
  Arena arena;
  const Tensor wide = random_tensor<float>(arena, {int64_t{64} << 20}, 4);
  std::printf("multiply-add chains alone: %.1f GFLOP/s\n",
              kPeakFlop / fast_seconds(1.0, multiply_add_chains) * 1e-9);
  std::printf("dtype product       M      N      K\n");
  for (const Shape& s :
       {Shape{16, 3072, 1024}, Shape{64, 1024, 1024}, Shape{64, 1024, 3072}, Shape{256, 3072, 1024},
        Shape{512, 1024, 1024}, Shape{1000, 896, 4864}, Shape{512, 4096, 4096}}) {
    bench_products<float>("fp32", s, wide.as<float>());
    bench_products<bf16>("bf16", s, wide.as<float>());
  }
  const Tensor narrow = random_tensor<bf16>(arena, {int64_t{64} << 20}, 5);
  const double bandwidth = read_rate(wide.as<float>(), wide.bytes());
  std::printf("one core: %.1f GB/s read bandwidth\n", bandwidth * 1e-9);
  for (const int64_t K : {1024, 4096})
    for (const int64_t M : {1, 2, 4, 8}) {
      bench_decode<float>("fp32", M, K, wide, bandwidth);
      bench_decode<bf16>("bf16", M, K, narrow, bandwidth);
    }
  return 0;
}

}  // namespace
}  // namespace temper

int main() { return temper::run(); }
