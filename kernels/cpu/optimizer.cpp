#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {
namespace {

inline void set_weight(float& weight, float master) { weight = master; }
inline void set_weight(double& weight, double master) { weight = master; }
inline void set_weight(bf16& weight, float master) {
  weight.bits = static_cast<uint16_t>((std::bit_cast<uint32_t>(master) + 0x8000u) >> 16);
}

/// AdamwStep with everything that is the same for all elements, computed in fp64.
template <class A>
struct Coefficients {
  A grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, decay, step_size, v_scale;

  explicit Coefficients(const AdamwStep& s)
      : grad_scale(static_cast<A>(s.grad_scale)),
        beta1(static_cast<A>(s.beta1)),
        one_minus_beta1(static_cast<A>(1.0 - s.beta1)),
        beta2(static_cast<A>(s.beta2)),
        one_minus_beta2(static_cast<A>(1.0 - s.beta2)),
        eps(static_cast<A>(s.eps)),
        decay(static_cast<A>(1.0 - s.lr * s.weight_decay)),
        step_size(static_cast<A>(s.lr / (1.0 - std::pow(s.beta1, static_cast<double>(s.count))))),
        v_scale(static_cast<A>(1.0 / (1.0 - std::pow(s.beta2, static_cast<double>(s.count))))) {}
};

}  // namespace

void adamw_step(Ctx& ctx, Tensor weight, Tensor master, Tensor m, Tensor v, CTensor grad, AdamwStep step) {
  dispatch_storage(weight.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const Coefficients<A> k(step);
    S* rounded = weight.as<S>();
    A *p = master.as<A>(), *first = m.as<A>(), *second = v.as<A>();
    const A* gradient = grad.as<A>();
    parallel_ranges(ctx.threads, weight.size(), row_grain(1), [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const A g = gradient[i] * k.grad_scale;
        first[i] = k.beta1 * first[i] + k.one_minus_beta1 * g;
        second[i] = k.beta2 * second[i] + k.one_minus_beta2 * (g * g);
        const A next = p[i] * k.decay - k.step_size * (first[i] / (std::sqrt(second[i] * k.v_scale) + k.eps));
        p[i] = next;
        set_weight(rounded[i], next);
      }
    });
  });
}

void round_master(Ctx& ctx, Tensor weight, CTensor master) {
  dispatch_storage(weight.dtype, [&](auto s) {
    using S = decltype(s);
    S* rounded = weight.as<S>();
    const Accumulate<S>* p = master.as<Accumulate<S>>();
    parallel_ranges(ctx.threads, weight.size(), row_grain(1), [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) set_weight(rounded[i], p[i]);
    });
  });
}

void sum_of_squares(Ctx& ctx, double* result, CTensor x) {
  constexpr int64_t kBlock = 16384;
  ArenaScope scope(ctx.scratch);
  const int64_t blocks = (x.size() + kBlock - 1) / kBlock;
  double* partial = static_cast<double*>(ctx.scratch.allocate(blocks * static_cast<int64_t>(sizeof(double))));
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    const S* from = x.as<S>();
    parallel_ranges(ctx.threads, x.size(), kBlock, [&](int64_t begin, int64_t end) {
      partial[begin / kBlock] = lane_sum<double>(begin, end, [&](double sum, int64_t i) {
        const double value = static_cast<double>(load(from[i]));
        return std::fma(value, value, sum);
      });
    });
  });
  double sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += partial[b];
  *result = sum;
}

}  // namespace temper::cpu
