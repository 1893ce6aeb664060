#include "kernels/cpu/attention_batch.h"
#include "kernels/cpu/delta_sequences.h"
#include "kernels/cpu/hybrid.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {
namespace {

template <class A>
inline A sigmoid(A x) {
  return A(1) / (A(1) + exponential(-x));
}
template <class A>
inline A silu_slope(A x) {
  const A s = sigmoid(x);
  return s * (A(1) + x * (A(1) - s));
}

/// The sum of a row's taps, ascending. `rows[j]`: of tap j; null before the sequence.
template <class S, class A = Accumulate<S>>
inline A tap_sum(const S* const* rows, const S* w, int64_t taps, int64_t channel) {
  A sum = 0;
  for (int64_t j = 0; j < taps; ++j)
    if (rows[j]) sum = std::fma(load(w[channel * taps + j]), load(rows[j][channel]), sum);
  return sum;
}

/// Rows of taps for the row at `position` of a sequence: `at` [position] of its own rows, before those of
/// `window`, whose last row is the one before them.
template <class S>
struct TapRows {
  const S* rows[kMostDeltaTaps];
  TapRows(const S* first_row, int64_t row, int64_t rows_before, int64_t position, int64_t taps,
          const S* window, int64_t channels) {
    for (int64_t j = 0; j < taps; ++j) {
      const int64_t back = taps - 1 - j, own = rows_before - back;
      rows[j] = position < back ? nullptr
                : own >= 0      ? first_row + own * row
                                : window + (taps - 1 + own) * channels;
    }
  }
};

template <class S>
void convolve(Ctx& ctx, S* y, const S* x, int64_t row, const S* w, int64_t channels, int64_t taps,
              const std::vector<SequenceRows>& sequences, const DeltaTails<S>* tails) {
  using A = Accumulate<S>;
  constexpr int64_t kChannels = 256;
  const int64_t pieces = (channels + kChannels - 1) / kChannels;
  parallel_for(ctx.threads, std::ssize(sequences) * pieces, [&](int64_t i) {
    const auto n = static_cast<size_t>(i / pieces);
    const SequenceRows& s = sequences[n];
    const int64_t begin = i % pieces * kChannels, end = std::min(channels, begin + kChannels);
    S* const window = tails ? tails->window(n) : nullptr;
    const S* const first = x + s.row * row;
    for (int64_t u = 0; u < s.rows; ++u) {
      const TapRows<S> taps_of(first, row, u, s.first_position() + u, taps, window, channels);
      S* to = y + (s.row + u) * channels;
      for (int64_t ch = begin; ch < end; ++ch) {
        const A c = tap_sum<S>(taps_of.rows, w, taps, ch);
        to[ch] = store<S>(c * sigmoid(c));
      }
    }
    if (!window || s.rows == 0) return;
    // Ascending: a row of the window is read before it is written.
    for (int64_t k = 0; k < taps - 1; ++k) {
      const int64_t own = s.rows - (taps - 1) + k;
      const S* from = own >= 0 ? first + own * row : window + (k + s.rows) * channels;
      std::copy(from + begin, from + end, window + k * channels + begin);
    }
  });
}

}  // namespace

void causal_conv_forward(Ctx& ctx, Tensor y, CTensor x, CTensor w, CTensor cu_seqlens) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    convolve<S>(ctx, y.as<S>(), x.as<S>(), x.dim(1), w.as<S>(), w.dim(0), w.dim(1),
                packed_sequences(cu_seqlens, x.dim(0)), nullptr);
  });
}

void causal_conv_paged(Ctx& ctx, Tensor y, DeltaPages pages, int64_t layer, CTensor x, CTensor w,
                       CTensor cu_seqlens) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    const DeltaTails<S> tails(pages, layer);
    convolve<S>(ctx, y.as<S>(), x.as<S>(), x.dim(1), w.as<S>(), w.dim(0), w.dim(1),
                running_sequences(cu_seqlens, x.dim(0), pages), &tails);
  });
}

namespace {

constexpr int64_t kBackwardChannels = 64;

/// The tensors of a convolution's backward, some channels of which are one piece of work.
template <class S>
struct ConvBackward {
  using A = Accumulate<S>;
  S* dx;
  A* dw;
  const S *dy, *x, *w;
  int64_t dx_row, x_row, channels, taps;

  void add(const std::vector<SequenceRows>& sequences, int64_t begin, int64_t end) const {
    A sums[kBackwardChannels * kMostDeltaTaps] = {};
    for (const SequenceRows& s : sequences) add_sequence(s, begin, end, sums);
    for (int64_t i = begin * taps; i < end * taps; ++i) dw[i] += sums[i - begin * taps];
  }

  /// From the last row on: pending[j] is what row u - (taps - 1) + j of x has of its gradient so far.
  void add_sequence(const SequenceRows& s, int64_t begin, int64_t end, A* sums) const {
    A all[kBackwardChannels * kMostDeltaTaps] = {};
    for (int64_t u = s.rows - 1; u >= 0; --u) {
      const TapRows<S> of(x + s.row * x_row, x_row, u, u, taps, nullptr, channels);
      for (int64_t ch = begin; ch < end; ++ch) {
        const A dc = load(dy[(s.row + u) * channels + ch]) * silu_slope(tap_sum<S>(of.rows, w, taps, ch));
        A *pending = all + (ch - begin) * taps, *sum = sums + (ch - begin) * taps;
        for (int64_t j = 0; j < taps; ++j) {
          if (of.rows[j]) sum[j] = std::fma(dc, load(of.rows[j][ch]), sum[j]);
          pending[j] = std::fma(load(w[ch * taps + j]), dc, pending[j]);
        }
        dx[(s.row + u) * dx_row + ch] = store<S>(pending[taps - 1]);
        for (int64_t j = taps - 1; j > 0; --j) pending[j] = pending[j - 1];
        pending[0] = A(0);
      }
    }
  }
};

}  // namespace

void causal_conv_backward(Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor w,
                          CTensor cu_seqlens) {
  const std::vector<SequenceRows> sequences = packed_sequences(cu_seqlens, x.dim(0));
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    const ConvBackward<S> backward{
        dx.as<S>(), dw.as<Accumulate<S>>(), dy.as<S>(), x.as<S>(), w.as<S>(), dx.dim(1), x.dim(1), w.dim(0),
        w.dim(1)};
    parallel_ranges(ctx.threads, w.dim(0), kBackwardChannels,
                    [&](int64_t begin, int64_t end) { backward.add(sequences, begin, end); });
  });
}

namespace {

/// For each head of q and k: its first element, and what its unit vector is multiplied by.
template <class S, class Body>
void for_unit_heads(Ctx& ctx, int64_t tokens, const DeltaShape& shape, Body&& body) {
  using A = Accumulate<S>;
  const A q_scale = A(1) / std::sqrt(static_cast<A>(shape.key_dim));
  parallel_ranges(ctx.threads, tokens, row_grain(2 * shape.key_width()), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < 2 * shape.key_heads; ++h)
        body(t * shape.qkv_width() + h * shape.key_dim, h < shape.key_heads ? q_scale : A(1));
  });
}

template <class S, class A = Accumulate<S>>
A inverse_length(const S* y, int64_t width) {
  const A squares =
      lane_sum<A>(0, width, [&](A sum, int64_t i) { return std::fma(load(y[i]), load(y[i]), sum); });
  return A(1) / std::sqrt(squares + static_cast<A>(1e-6));
}

}  // namespace

void unit_heads_forward(Ctx& ctx, Tensor y, DeltaShape shape) {
  dispatch_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    S* to = y.as<S>();
    for_unit_heads<S>(ctx, y.dim(0), shape, [&](int64_t head, A scale) {
      const A r = inverse_length(to + head, shape.key_dim);
      for (int64_t i = head; i < head + shape.key_dim; ++i) to[i] = store<S>((load(to[i]) * r) * scale);
    });
  });
}

void unit_heads_backward(Ctx& ctx, Tensor dy, CTensor y, DeltaShape shape) {
  dispatch_storage(y.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    S* to = dy.as<S>();
    const S* from = y.as<S>();
    for_unit_heads<S>(ctx, y.dim(0), shape, [&](int64_t head, A scale) {
      const int64_t width = shape.key_dim;
      const A r = inverse_length(from + head, width);
      const A dot = lane_sum<A>(head, head + width, [&](A sum, int64_t i) {
        return std::fma(load(from[i]) * r, load(to[i]) * scale, sum);
      });
      for (int64_t i = head; i < head + width; ++i)
        to[i] = store<S>(r * (load(to[i]) * scale - (load(from[i]) * r) * dot));
    });
  });
}

void delta_gates_forward(Ctx& ctx, Tensor beta, Tensor g, CTensor x, CTensor a_log, CTensor dt_bias,
                         DeltaShape shape) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t heads = shape.value_heads, row = x.dim(1);
    const S *from = x.as<S>(), *bias = dt_bias.as<S>();
    const A* log = a_log.as<A>();
    A *to_beta = beta.as<A>(), *to_g = g.as<A>();
    parallel_ranges(ctx.threads, x.dim(0), row_grain(heads), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < heads; ++h) {
          const S* gates = from + t * row + shape.gates_column();
          const A sum = load(gates[heads + h]) + load(bias[h]);
          const A softplus = sum > A(20) ? sum : std::log1p(exponential(sum));
          to_beta[t * heads + h] = sigmoid(load(gates[h]));
          to_g[t * heads + h] = -exponential(log[h]) * softplus;
        }
    });
  });
}

void delta_gates_backward(Ctx& ctx, Tensor dx, Tensor da_log, Tensor ddt_bias, CTensor dbeta, CTensor dg,
                          CTensor beta, CTensor g, CTensor x, CTensor a_log, CTensor dt_bias,
                          DeltaShape shape) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t heads = shape.value_heads, row = x.dim(1);
    const S *from = x.as<S>(), *bias = dt_bias.as<S>();
    const A *log = a_log.as<A>(), *of_beta = beta.as<A>(), *of_g = g.as<A>(), *upstream_beta = dbeta.as<A>(),
            *upstream_g = dg.as<A>();
    S* to = dx.as<S>();
    ArenaScope scope(ctx.scratch);
    A* both = ctx.scratch.zeros({2, heads}, kDTypeOf<A>).template as<A>();  // gradients of a_log, dt_bias
    sum_over_rows(ctx, both, x.dim(0), 2 * heads, [&](int64_t begin, int64_t end, A* partial) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t gates = t * row + shape.gates_column(), at = t * heads + h;
          const A upstream = upstream_g[at], sum = load(from[gates + heads + h]) + load(bias[h]);
          const A da = -upstream * exponential(log[h]) * (sum > A(20) ? A(1) : sigmoid(sum));
          to[gates + h] = store<S>(upstream_beta[at] * of_beta[at] * (A(1) - of_beta[at]));
          to[gates + heads + h] = store<S>(da);
          partial[h] = std::fma(upstream, of_g[at], partial[h]);
          partial[heads + h] += da;
        }
    });
    A *log_sum = da_log.as<A>(), *bias_sum = ddt_bias.as<A>();
    parallel_ranges(ctx.threads, heads, heads, [&](int64_t begin, int64_t end) {
      for (int64_t h = begin; h < end; ++h) {
        log_sum[h] += both[h];
        bias_sum[h] += both[heads + h];
      }
    });
  });
}

void delta_inputs_forward(Ctx& ctx, Tensor qkv, Tensor beta, Tensor g, CTensor x, CTensor w, CTensor a_log,
                          CTensor dt_bias, CTensor cu_seqlens, DeltaShape shape) {
  causal_conv_forward(ctx, qkv, x, w, cu_seqlens);
  unit_heads_forward(ctx, qkv, shape);
  delta_gates_forward(ctx, beta, g, x, a_log, dt_bias, shape);
}

void delta_inputs_paged(Ctx& ctx, Tensor qkv, Tensor beta, Tensor g, DeltaPages pages, int64_t layer,
                        CTensor x, CTensor w, CTensor a_log, CTensor dt_bias, CTensor cu_seqlens,
                        DeltaShape shape) {
  causal_conv_paged(ctx, qkv, pages, layer, x, w, cu_seqlens);
  unit_heads_forward(ctx, qkv, shape);
  delta_gates_forward(ctx, beta, g, x, a_log, dt_bias, shape);
}

void delta_conv_backward(Ctx& ctx, Tensor dx, Tensor dw, Tensor dqkv, CTensor x, CTensor w,
                         CTensor cu_seqlens, DeltaShape shape) {
  ArenaScope scope(ctx.scratch);
  const Tensor convolved = ctx.scratch.like(dqkv);
  causal_conv_forward(ctx, convolved, x, w, cu_seqlens);
  unit_heads_backward(ctx, dqkv, convolved, shape);
  causal_conv_backward(ctx, dx, dw, dqkv, x, w, cu_seqlens);
}

void gated_norm_forward(Ctx& ctx, Tensor y, Tensor rstd, CTensor o, CTensor x, CTensor w, DeltaShape shape,
                        double eps) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t heads = shape.value_heads, width = shape.value_dim, row = x.dim(1);
    S* to = y.as<S>();
    A* r = rstd.as<A>();
    const S *from = o.as<S>(), *projected = x.as<S>();
    const A* weight = w.as<A>();
    parallel_ranges(ctx.threads, x.dim(0), row_grain(heads * width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * heads; i < end * heads; ++i) {
        const S *head = from + i * width,
                *z = projected + i / heads * row + shape.qkv_width() + i % heads * width;
        const A squares = lane_sum<A>(
            0, width, [&](A sum, int64_t k) { return std::fma(load(head[k]), load(head[k]), sum); });
        r[i] = A(1) / std::sqrt(squares / static_cast<A>(width) + static_cast<A>(eps));
        for (int64_t k = 0; k < width; ++k) {
          const A gate = load(z[k]);
          to[i * width + k] = store<S>((weight[k] * (load(head[k]) * r[i])) * (gate * sigmoid(gate)));
        }
      }
    });
  });
}

void gated_norm_backward(Ctx& ctx, Tensor d_o, Tensor dx, Tensor dw, CTensor dy, CTensor o, CTensor x,
                         CTensor w, CTensor rstd, DeltaShape shape) {
  dispatch_storage(x.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    const int64_t heads = shape.value_heads, width = shape.value_dim, row = x.dim(1);
    S *to = d_o.as<S>(), *to_row = dx.as<S>();
    const S *upstream = dy.as<S>(), *from = o.as<S>(), *projected = x.as<S>();
    const A *weight = w.as<A>(), *r = rstd.as<A>();
    sum_over_rows(ctx, dw.as<A>(), x.dim(0), width, [&](int64_t begin, int64_t end, A* partial) {
      for (int64_t i = begin * heads; i < end * heads; ++i) {
        const int64_t at = i * width, z = i / heads * row + shape.qkv_width() + i % heads * width;
        const auto upstream_of = [&](int64_t k) {  // of n = o r
          const A gate = load(projected[z + k]);
          return load(upstream[at + k]) * weight[k] * (gate * sigmoid(gate));
        };
        const A dot = lane_sum<A>(0, width, [&](A sum, int64_t k) {
          return std::fma(upstream_of(k), load(from[at + k]) * r[i], sum);
        });
        const A mean = dot / static_cast<A>(width);
        for (int64_t k = 0; k < width; ++k) {
          const A gate = load(projected[z + k]), n = load(from[at + k]) * r[i], dm = load(upstream[at + k]);
          const A dn = upstream_of(k);
          partial[k] = std::fma(dm * n, gate * sigmoid(gate), partial[k]);
          to_row[z + k] = store<S>(dm * weight[k] * n * silu_slope(gate));
          to[at + k] = store<S>(r[i] * (dn - n * mean));
        }
      }
    });
  });
}

}  // namespace temper::cpu
