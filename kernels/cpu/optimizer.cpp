#include "kernels/adamw.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {
namespace {

inline void set_weight(float& weight, float master) { weight = master; }
inline void set_weight(double& weight, double master) { weight = master; }
inline void set_weight(bf16& weight, float master) { weight.bits = master_weight(master); }

inline float load_master(float, float master) { return master; }
inline float load_master(bf16, float master) { return master; }
inline float load_master(bf16 weight, uint16_t remainder) { return joined_master(weight.bits, remainder); }
inline double load_master(double, double master) { return master; }
template <class A>
inline void set_master(A& stored, A master) {
  stored = master;
}
inline void set_master(uint16_t& remainder, float master) { remainder = master_remainder(master); }

/// `random`: 16 bits, which only bf16 is rounded by.
inline void set_moment(float& stored, float moment, uint32_t) { stored = moment; }
inline void set_moment(double& stored, double moment, uint32_t) { stored = moment; }
inline void set_moment(bf16& stored, float moment, uint32_t random) {
  stored.bits = static_cast<uint16_t>((std::bit_cast<uint32_t>(moment) + random) >> 16);
}

/// The words of 64 elements of the model, from a multiple of kMomentGroup on.
constexpr int64_t kDrawn = kMomentGroup * kPhiloxBlocks;
void draw_words(uint32_t* to, const AdamwStep& step, int64_t element) {
  PhiloxWords words;
  const auto first = static_cast<uint64_t>(element / kMomentGroup);
  for (int b = 0; b < kPhiloxBlocks; ++b) {
    const uint64_t n4 = first + static_cast<uint64_t>(b);
    words[0][b] = static_cast<uint32_t>(n4);
    words[1][b] = static_cast<uint32_t>(n4 >> 32);
    words[2][b] = static_cast<uint32_t>(step.count);
    words[3][b] = static_cast<uint32_t>(RngStream::moments) << 24;
  }
  philox_blocks(words, step.seed);
  for (int b = 0; b < kPhiloxBlocks; ++b)
    for (int j = 0; j < 4; ++j) to[4 * b + j] = words[j][b];
}

/// The tensors of adamw_step: weights, masters and moments as they are stored.
template <class S, class P, class M, class A = Accumulate<S>>
struct Update {
  S* weight;
  P* master;
  M *m, *v;
  const A* grad;
  const AdamwStep& step;
  AdamwFactors<A> k{step};

  void run(bool decays, int64_t begin, int64_t end) const {
    const A decay = decays ? k.decay : A(1);
    if constexpr (std::is_same_v<M, A>) {
      elements(decay, begin, end, [](int64_t) { return 0u; });
    } else {
      while (begin < end) {
        const int64_t first = begin / kMomentGroup * kMomentGroup, stop = std::min(end, first + kDrawn);
        uint32_t words[kDrawn];
        draw_words(words, step, step.first_element + first);
        elements(decay, begin, stop, [&](int64_t i) { return words[i - first]; });
        begin = stop;
      }
    }
  }

  /// word(i): the random bits of an element.
  template <class Word>
  void elements(A decay, int64_t begin, int64_t end, const Word& word) const {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const A g = grad[i] * k.grad_scale;
      const A first = k.beta1 * load(m[i]) + k.one_minus_beta1 * g;
      const A second = k.beta2 * load(v[i]) + k.one_minus_beta2 * (g * g);
      const A next = load_master(weight[i], master[i]) * decay -
                     k.step_size * (first / (std::sqrt(second * k.v_scale) + k.eps));
      set_moment(m[i], first, word(i) & 0xffffu);
      set_moment(v[i], second, word(i) >> 16);
      set_master(master[i], next);
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
  const auto run = [&]<class S, class P, class M>(S, P, M) {
    const Update<S, P, M> update{.weight = weight.as<S>(),
                                 .master = master.as<P>(),
                                 .m = m.as<M>(),
                                 .v = v.as<M>(),
                                 .grad = grad.as<Accumulate<S>>(),
                                 .step = step};
    parallel_ranges(ctx.threads, weight.size(), row_grain(1), [&](int64_t begin, int64_t end) {
      cut_by_decay(decays, begin, end,
                   [&](int64_t from, int64_t to, bool here) { update.run(here, from, to); });
    });
  };
  const auto with_moments = [&]<class S, class P>(S s, P p) {
    if constexpr (!std::is_same_v<S, double>)
      if (m.dtype == DType::bf16) return run(s, p, bf16{});
    run(s, p, Accumulate<S>{});
  };
  dispatch_storage(weight.dtype, [&]<class S>(S s) {
    if constexpr (std::is_same_v<S, bf16>)
      if (master.dtype == DType::u16) return with_moments(s, uint16_t{});
    with_moments(s, Accumulate<S>{});
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
