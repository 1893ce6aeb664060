#include "kernels/adamw.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {
namespace {

inline void set_weight(float& weight, float master) { weight = master; }
inline void set_weight(double& weight, double master) { weight = master; }
inline void set_weight(bf16& weight, float master) {
  weight.bits = static_cast<uint16_t>((std::bit_cast<uint32_t>(master) + 0x8000u) >> 16);
}

/// The tensors of adamw_step.
template <class S, class A = Accumulate<S>>
struct Update {
  S* weight;
  A *master, *m, *v;
  const A* grad;

  void run(const AdamwFactors<A>& k, A decay, int64_t begin, int64_t end) const {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const A g = grad[i] * k.grad_scale;
      m[i] = k.beta1 * m[i] + k.one_minus_beta1 * g;
      v[i] = k.beta2 * v[i] + k.one_minus_beta2 * (g * g);
      const A next = master[i] * decay - k.step_size * (m[i] / (std::sqrt(v[i] * k.v_scale) + k.eps));
      master[i] = next;
      set_weight(weight[i], next);
    }
  }
};

/// piece(begin, end, whether it decays) for all of [begin, end), ascending.
template <class Piece>
void cut_by_decay(std::span<const FlatRange> decays, int64_t begin, int64_t end, Piece&& piece) {
  auto next = std::partition_point(decays.begin(), decays.end(),
                                   [&](const FlatRange& range) { return range.end <= begin; });
  while (begin < end) {
    const bool before = next == decays.end() || begin < next->begin;
    const int64_t stop = std::min(end, next == decays.end() ? end : before ? next->begin : next->end);
    piece(begin, stop, !before);
    if (!before) ++next;
    begin = stop;
  }
}

}  // namespace

void adamw_step(Ctx& ctx, Tensor weight, Tensor master, Tensor m, Tensor v, CTensor grad,
                std::span<const FlatRange> decays, AdamwStep step) {
  dispatch_storage(weight.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const AdamwFactors<A> k(step);
    const Update<S> update{weight.as<S>(), master.as<A>(), m.as<A>(), v.as<A>(), grad.as<A>()};
    parallel_ranges(ctx.threads, weight.size(), row_grain(1), [&](int64_t begin, int64_t end) {
      cut_by_decay(decays, begin, end, [&](int64_t from, int64_t to, bool decays_here) {
        update.run(k, decays_here ? k.decay : A(1), from, to);
      });
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

void sum_of_squares(Ctx& ctx, Tensor sum, CTensor x) {
  constexpr int64_t kBlock = 16384;
  ArenaScope scope(ctx.scratch);
  const int64_t blocks = (x.size() + kBlock - 1) / kBlock;
  double* partial = static_cast<double*>(ctx.scratch.allocate(blocks * static_cast<int64_t>(sizeof(double))));
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    const S* from = x.as<S>();
    parallel_ranges(ctx.threads, x.size(), kBlock, [&](int64_t begin, int64_t end) {
      partial[begin / kBlock] = lane_sum<double>(begin, end, [&](double lane, int64_t i) {
        const double value = static_cast<double>(load(from[i]));
        return std::fma(value, value, lane);
      });
    });
  });
  parallel_for(ctx.threads, 1, [&](int64_t) {
    double all = 0;
    for (int64_t b = 0; b < blocks; ++b) all += partial[b];
    *sum.as<double>() += all;
  });
}

}  // namespace temper::cpu
