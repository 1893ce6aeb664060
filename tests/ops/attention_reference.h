#pragma once
// What the attention tests compare with: plain fp64 formulas, and a scalar reading of NUMERICS.md whose order
// can be changed on purpose, to see that the comparison notices.

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/canonical.h"
#include "src/ops/attention.h"
#include "src/ops/backend.h"

namespace temper {

inline double as_double(float x) { return x; }
inline double as_double(double x) { return x; }
inline double as_double(bf16 x) { return static_cast<float>(x); }

/// A packed batch and what attention makes of it.
template <class S>
struct PackedBatch {
  using A = Accumulate<S>;
  AttentionShape shape;
  std::vector<int32_t> cu{0};
  std::vector<S> qkv, out, dout, dqkv;
  std::vector<A> lse;
  double scale = 0;

  PackedBatch(AttentionShape heads, const std::vector<int>& lengths, uint32_t seed = 1) : shape(heads) {
    for (int n : lengths) cu.push_back(cu.back() + n);
    scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    qkv = normal(tokens() * shape.qkv_width(), seed);
    dout = normal(tokens() * shape.q_width(), seed + 1);
    out.resize(dout.size());
    dqkv.assign(qkv.size(), S(std::numeric_limits<float>::quiet_NaN()));
    lse.resize(static_cast<size_t>(shape.q_heads * tokens()));
  }
  static std::vector<S> normal(int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution;
    std::vector<S> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(S(distribution(random)));
    return values;
  }
  int64_t tokens() const { return cu.back(); }
  int64_t sequences() const { return static_cast<int64_t>(cu.size()) - 1; }
  CTensor cu_tensor() const { return view_of(cu.data(), {static_cast<int64_t>(cu.size())}); }
  Tensor tensor(std::vector<S>& data, int64_t width) const {
    return make_tensor(data.data(), kDTypeOf<S>, {tokens(), width});
  }
  void forward(int threads = 1) {
    Backend backend(Device::cpu, threads);
    Ctx& c = backend.ctx();
    attention_varlen_forward(c, tensor(out, shape.q_width()),
                             make_tensor(lse.data(), kDTypeOf<A>, {shape.q_heads, tokens()}),
                             tensor(qkv, shape.qkv_width()), cu_tensor(), shape, scale);
  }
  void backward(int threads = 1) {
    Backend backend(Device::cpu, threads);
    Ctx& c = backend.ctx();
    attention_varlen_backward(c, tensor(dqkv, shape.qkv_width()), tensor(dout, shape.q_width()),
                              tensor(qkv, shape.qkv_width()), tensor(out, shape.q_width()),
                              make_tensor(lse.data(), kDTypeOf<A>, {shape.q_heads, tokens()}), cu_tensor(),
                              shape, scale);
  }
  const S* q(int64_t t, int64_t h) const { return qkv.data() + t * shape.qkv_width() + h * shape.head_dim; }
  const S* k(int64_t t, int64_t h) const {
    return q(t, shape.q_heads + h / (shape.q_heads / shape.kv_heads));
  }
  const S* v(int64_t t, int64_t h) const { return k(t, h) + shape.kv_width(); }
  int64_t sequence_begin(int64_t t) const { return *(std::upper_bound(cu.begin(), cu.end(), t) - 1); }
};

struct ReferenceRow {
  std::vector<double> out;
  double lse = 0;
};

/// Row t of head h by the definition, in fp64.
template <class S>
ReferenceRow plain_row(const PackedBatch<S>& b, int64_t t, int64_t h) {
  const int64_t begin = b.sequence_begin(t), dh = b.shape.head_dim;
  std::vector<double> s;
  for (int64_t j = begin; j <= t; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < dh; ++d) dot += as_double(b.q(t, h)[d]) * as_double(b.k(j, h)[d]);
    s.push_back(dot * b.scale);
  }
  const double max = *std::max_element(s.begin(), s.end());
  double sum = 0;
  for (double x : s) sum += std::exp(x - max);
  ReferenceRow row{std::vector<double>(static_cast<size_t>(dh)), max + std::log(sum)};
  for (int64_t j = begin; j <= t; ++j) {
    const double p = std::exp(s[static_cast<size_t>(j - begin)] - row.lse);
    for (int64_t d = 0; d < dh; ++d) row.out[static_cast<size_t>(d)] += p * as_double(b.v(j, h)[d]);
  }
  return row;
}

/// dqkv by the definition, in fp64, with delta from the rounded out as it is stored.
template <class S>
std::vector<double> plain_backward(const PackedBatch<S>& b) {
  const int64_t dh = b.shape.head_dim, width = b.shape.qkv_width();
  const int64_t group = b.shape.q_heads / b.shape.kv_heads;
  std::vector<double> gradient(b.qkv.size());
  for (int64_t t = 0; t < b.tokens(); ++t)
    for (int64_t h = 0; h < b.shape.q_heads; ++h) {
      const double lse = plain_row(b, t, h).lse;
      const S* dout = b.dout.data() + t * b.shape.q_width() + h * dh;
      const S* out = b.out.data() + t * b.shape.q_width() + h * dh;
      double delta = 0;
      for (int64_t d = 0; d < dh; ++d) delta += as_double(dout[d]) * as_double(out[d]);
      for (int64_t j = b.sequence_begin(t); j <= t; ++j) {
        double s = 0, dp = 0;
        for (int64_t d = 0; d < dh; ++d) {
          s += as_double(b.q(t, h)[d]) * as_double(b.k(j, h)[d]);
          dp += as_double(dout[d]) * as_double(b.v(j, h)[d]);
        }
        const double p = std::exp(s * b.scale - lse), ds = p * (dp - delta) * b.scale;
        double* dq = gradient.data() + t * width + h * dh;
        double* dk = gradient.data() + j * width + (b.shape.q_heads + h / group) * dh;
        double* dv = dk + b.shape.kv_width();
        for (int64_t d = 0; d < dh; ++d) {
          dq[d] += ds * as_double(b.k(j, h)[d]);
          dk[d] += ds * as_double(b.q(t, h)[d]);
          dv[d] += p * as_double(dout[d]);
        }
      }
    }
  return gradient;
}

/// The order of the arithmetic; the defaults are NUMERICS.md.
struct Order {
  int64_t block = 128, split = 1024;
  bool descending_values = false, descending_features = false, one_sum = false, fold_in_pairs = false;
  bool round_probabilities = true;
};

/// Row t of head h one operation after another.
template <class S>
class ScalarRow {
  using A = Accumulate<S>;
  struct State {
    A max = -std::numeric_limits<A>::infinity(), sum = 0;
    std::vector<A> o;
  };

 public:
  ScalarRow(const PackedBatch<S>& batch, int64_t t, int64_t h, const Order& order)
      : b_(batch), t_(t), h_(h), dh_(batch.shape.head_dim), begin_(batch.sequence_begin(t)), order_(order) {}

  /// out (rounded), then lse.
  std::vector<A> run() {
    const int64_t length = t_ - begin_ + 1;
    State total;
    for (int64_t split = 0; split < length; split += order_.split) {
      State part{.o = std::vector<A>(static_cast<size_t>(dh_))};
      const int64_t end = std::min(split + order_.split, length);
      for (int64_t j = split; j < end; j += order_.block) add_block(part, j, std::min(j + order_.block, end));
      total = split == 0 ? part : merge(total, part);
    }
    std::vector<A> result;
    const A inverse = A(1) / total.sum;
    for (A o : total.o) result.push_back(cpu::load(S(o * inverse)));
    result.push_back(total.max + std::log(total.sum));
    return result;
  }

 private:
  A score(int64_t j) const {
    A s = 0;
    for (int64_t i = 0; i < dh_; ++i) {
      const int64_t d = order_.descending_features ? dh_ - 1 - i : i;
      s = std::fma(cpu::load(b_.q(t_, h_)[d]), cpu::load(b_.k(begin_ + j, h_)[d]), s);
    }
    return s * static_cast<A>(b_.scale);
  }

  A fold(const std::vector<A>& p) const {
    A lanes[cpu::kLanes] = {};
    if (order_.one_sum) {
      for (A x : p) lanes[0] += x;
      return lanes[0];
    }
    for (size_t i = 0; i < p.size(); ++i) lanes[i % cpu::kLanes] += p[i];
    if (!order_.fold_in_pairs) return cpu::tree_sum(lanes);
    for (int step = 1; step < cpu::kLanes; step *= 2)
      for (int i = 0; i < cpu::kLanes; i += 2 * step) lanes[i] += lanes[i + step];
    return lanes[0];
  }

  void add_block(State& state, int64_t begin, int64_t end) const {
    std::vector<A> p;
    A max = state.max;
    for (int64_t j = begin; j < end; ++j) {
      p.push_back(score(j));
      max = std::max(max, p.back());
    }
    for (A& x : p) x = cpu::exponential(x - max);
    const A decay = cpu::exponential(state.max - max);
    state.sum = std::fma(state.sum, decay, fold(p));
    state.max = max;
    for (int64_t d = 0; d < dh_; ++d) {
      A o = state.o[static_cast<size_t>(d)] * decay;
      for (int64_t i = 0; i < end - begin; ++i) {
        const int64_t j = order_.descending_values ? end - begin - 1 - i : i;
        const A x = p[static_cast<size_t>(j)];
        o = std::fma(order_.round_probabilities ? cpu::load(S(x)) : x,
                     cpu::load(b_.v(begin_ + begin + j, h_)[d]), o);
      }
      state.o[static_cast<size_t>(d)] = o;
    }
  }

  State merge(const State& a, const State& b) const {
    State m{.max = std::max(a.max, b.max), .o = {}};
    const A fa = cpu::exponential(a.max - m.max), fb = cpu::exponential(b.max - m.max);
    m.sum = std::fma(b.sum, fb, a.sum * fa);
    for (size_t d = 0; d < a.o.size(); ++d) m.o.push_back(std::fma(b.o[d], fb, a.o[d] * fa));
    return m;
  }

  const PackedBatch<S>& b_;
  int64_t t_, h_, dh_, begin_;
  Order order_;
};

}  // namespace temper
