#include <array>

#include "kernels/cpu/delta_chunk.h"
#include "kernels/cpu/delta_sequences.h"
#include "kernels/cpu/hybrid.h"
#include "kernels/cpu/linear.h"

namespace temper::cpu {
namespace {

constexpr int64_t C = kDeltaChunk;

/// c += a b; [m, n] += [m, k] [k, n], with the distances between rows and columns of a.
template <class A>
void add_product(A* c, const A* a, int64_t a_row, int64_t a_column, const A* b, int64_t m, int64_t k,
                 int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j) {
      const A x = a[i * a_row + j * a_column];
#pragma omp simd
      for (int64_t d = 0; d < n; ++d) c[i * n + d] = std::fma(x, b[j * n + d], c[i * n + d]);
    }
}

template <class A>
A dot(const A* a, const A* b, int64_t n) {
  return lane_sum<A>(0, n, [&](A sum, int64_t i) { return std::fma(a[i], b[i], sum); });
}

/// Matrices of one chunk of one value head, in the names of the formulas of src/ops/hybrid/delta.h.
template <class A>
struct Matrices {
  A *q, *k, *x;                       // [C, dk]
  A *ks, *qs, *v, *u, *d_o, *du, *z;  // [C, dv]
  A *a, *p, *d, *da, *dp;             // [C, C]
  A *gam, *until_end, *dg, *beta;     // [C]

  static int64_t size(int64_t dk, int64_t dv) { return C * (3 * dk + 7 * dv + 5 * C + 4); }
  Matrices(A* work, int64_t dk, int64_t dv) {
    const auto take = [&](int64_t columns) {
      A* const at = work;
      work += C * columns;
      return at;
    };
    for (A** m : {&q, &k, &x}) *m = take(dk);
    for (A** m : {&ks, &qs, &v, &u, &d_o, &du, &z}) *m = take(dv);
    for (A** m : {&a, &p, &d, &da, &dp}) *m = take(C);
    for (A** m : {&gam, &until_end, &dg, &beta}) *m = take(1);
  }
};

/// The chunk's part of the gradients of a value head, given that of the state after it.
template <class A>
class ChunkBackward {
 public:
  ChunkBackward(const Matrices<A>& m, int64_t rows, int64_t dk, int64_t dv)
      : m_(m), n_(rows), dk_(dk), dv_(dv) {}

  /// From q, k, v, u, d_o, beta and decays. `state`: before the chunk, null for zeros. `dstate`: of the state
  /// after it, and then of that before it. dq, dk [C, dk] are added to; afterwards z is dv, beta dbeta, dg
  /// itself.
  void run(const A* decays, const A* state, A* dstate, A* dq, A* dk) {
    read(decays, state);
    through_writes(dstate);
    into_rows(state, dstate, dq, dk);
  }

 private:
  /// What the forward had of each pair of rows, and of the state.
  void read(const A* decays, const A* state) {
    const A last = decays[n_ - 1];
    for (int64_t i = 0; i < n_; ++i) {
      m_.gam[i] = exponential(decays[i]);
      m_.until_end[i] = exponential(last - decays[i]);
      for (int64_t j = 0; j < n_; ++j) {
        const A d = j <= i ? exponential(decays[i] - decays[j]) : A(0);
        m_.d[i * C + j] = d;
        m_.a[i * C + j] = j < i ? d * dot(m_.k + i * dk_, m_.k + j * dk_, dk_) : A(0);
        m_.p[i * C + j] = j <= i ? d * dot(m_.q + i * dk_, m_.k + j * dk_, dk_) : A(0);
      }
    }
    std::fill_n(m_.ks, n_ * dv_, A(0));
    std::fill_n(m_.qs, n_ * dv_, A(0));
    if (!state) return;
    add_product(m_.ks, m_.k, dk_, 1, state, n_, dk_, dv_);
    add_product(m_.qs, m_.q, dk_, 1, state, n_, dk_, dv_);
  }

  /// X, dU, Y, Z and dbeta.
  void through_writes(const A* dstate) {
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t a = 0; a < dk_; ++a) m_.x[i * dk_ + a] = dot(m_.u + i * dv_, dstate + a * dv_, dv_);
    std::fill_n(m_.du, n_ * dv_, A(0));
    add_product(m_.du, m_.p, 1, C, m_.d_o, n_, n_, dv_);
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t a = 0; a < dk_; ++a) {
        const A factor = m_.until_end[i] * m_.k[i * dk_ + a];
        for (int64_t d = 0; d < dv_; ++d)
          m_.du[i * dv_ + d] = std::fma(factor, dstate[a * dv_ + d], m_.du[i * dv_ + d]);
      }
    // Y in the place of dU: (I + diag(beta) A)^T Y = dU, from the last row.
    for (int64_t i = n_ - 1; i >= 0; --i) {
      A* const y = m_.du + i * dv_;
      for (int64_t j = i + 1; j < n_; ++j)
        for (int64_t d = 0; d < dv_; ++d) y[d] = std::fma(-m_.a[j * C + i], m_.z[j * dv_ + d], y[d]);
      for (int64_t d = 0; d < dv_; ++d) m_.z[i * dv_ + d] = m_.beta[i] * y[d];
    }
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < n_; ++j) {
        m_.da[i * C + j] = j < i ? -dot(m_.z + i * dv_, m_.u + j * dv_, dv_) : A(0);
        m_.dp[i * C + j] = j <= i ? dot(m_.d_o + i * dv_, m_.u + j * dv_, dv_) : A(0);
      }
  }

  /// <Y_i, v_i - Gam_i KS_i - (A U)_i>
  A dbeta(int64_t i) const {
    A sum = 0;
    for (int64_t d = 0; d < dv_; ++d) {
      A e = std::fma(-m_.gam[i], m_.ks[i * dv_ + d], m_.v[i * dv_ + d]);
      for (int64_t j = 0; j < i; ++j) e = std::fma(-m_.a[i * C + j], m_.u[j * dv_ + d], e);
      sum = std::fma(m_.du[i * dv_ + d], e, sum);
    }
    return sum;
  }

  void into_rows(const A* state, A* dstate, A* dq, A* dk) {
    for (int64_t i = 0; i < n_; ++i) m_.beta[i] = dbeta(i);
    decay_gradients(state, dstate);
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t a = 0; a < dk_; ++a) {
        A q_sum = 0, k_sum = m_.until_end[i] * m_.x[i * dk_ + a];
        if (state) {
          q_sum = m_.gam[i] * dot(m_.d_o + i * dv_, state + a * dv_, dv_);
          k_sum -= m_.gam[i] * dot(m_.z + i * dv_, state + a * dv_, dv_);
        }
        for (int64_t j = 0; j <= i; ++j) {
          const A d = m_.d[i * C + j];
          q_sum = std::fma(m_.dp[i * C + j] * d, m_.k[j * dk_ + a], q_sum);
          k_sum = std::fma(m_.da[i * C + j] * d, m_.k[j * dk_ + a], k_sum);
        }
        for (int64_t j = i; j < n_; ++j) {
          const A d = m_.d[j * C + i];
          k_sum = std::fma(m_.dp[j * C + i] * d, m_.q[j * dk_ + a], k_sum);
          k_sum = std::fma(m_.da[j * C + i] * d, m_.k[j * dk_ + a], k_sum);
        }
        dq[i * dk_ + a] += q_sum;
        dk[i * dk_ + a] += k_sum;
      }
    state_gradient(dstate);
  }

  /// dg from dG.
  void decay_gradients(const A* state, const A* dstate) {
    A at_end = 0;
    for (int64_t i = 0; i < n_; ++i) {
      const A e = m_.until_end[i] * dot(m_.k + i * dk_, m_.x + i * dk_, dk_);
      A sum = m_.gam[i] *
              (dot(m_.d_o + i * dv_, m_.qs + i * dv_, dv_) - dot(m_.z + i * dv_, m_.ks + i * dv_, dv_));
      for (int64_t j = 0; j < n_; ++j) sum += pair(i, j) - pair(j, i);
      m_.dg[i] = sum - e;
      at_end += e;
    }
    if (state) at_end = std::fma(m_.gam[n_ - 1], dot(state, dstate, dk_ * dv_), at_end);
    m_.dg[n_ - 1] += at_end;
    for (int64_t i = n_ - 2; i >= 0; --i) m_.dg[i] += m_.dg[i + 1];
  }
  /// E of dP o P + dA o A.
  A pair(int64_t i, int64_t j) const {
    return m_.dp[i * C + j] * m_.p[i * C + j] + m_.da[i * C + j] * m_.a[i * C + j];
  }

  void state_gradient(A* dstate) {
    const A decay = m_.gam[n_ - 1];
    for (int64_t i = 0; i < dk_ * dv_; ++i) dstate[i] = decay * dstate[i];
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t a = 0; a < dk_; ++a) {
        const A q = m_.gam[i] * m_.q[i * dk_ + a], k = m_.gam[i] * m_.k[i * dk_ + a];
        for (int64_t d = 0; d < dv_; ++d) {
          A& sum = dstate[a * dv_ + d];
          sum = std::fma(q, m_.d_o[i * dv_ + d], std::fma(-k, m_.z[i * dv_ + d], sum));
        }
      }
  }

  const Matrices<A>& m_;
  int64_t n_, dk_, dv_;
};

/// The tensors of one layer.
template <class S>
struct Layer {
  using A = Accumulate<S>;
  S* dqkv;
  A *dbeta, *dg;
  const S *d_o, *qkv, *u;
  const A *beta, *decays;
  DeltaShape shape;

  int64_t q_column(int64_t key_head) const { return key_head * shape.key_dim; }
  int64_t k_column(int64_t key_head) const { return shape.key_width() + key_head * shape.key_dim; }
  int64_t v_column(int64_t head) const { return 2 * shape.key_width() + head * shape.value_dim; }
  DeltaChunk<S> chunk(int64_t row, int64_t head) const {
    const int64_t key_head = head / shape.heads_per_key();
    return {.keys = qkv + row * shape.qkv_width() + k_column(key_head),
            .writes = const_cast<S*>(u) + (row * shape.value_heads + head) * shape.value_dim,
            .decays = const_cast<A*>(decays) + row * shape.value_heads + head,
            .key_row = shape.qkv_width(),
            .write_row = shape.value_width(),
            .decay_row = shape.value_heads,
            .key_dim = shape.key_dim,
            .value_dim = shape.value_dim};
  }
};

/// A sequence through the value heads of one key head, from its last chunk on.
template <class S>
class SequenceBackward {
  using A = Accumulate<S>;

 public:
  static int64_t work_size(const DeltaShape& s, int64_t chunks) {
    const int64_t states = s.heads_per_key() * (chunks + 1);
    return states * s.key_dim * s.value_dim + Matrices<A>::size(s.key_dim, s.value_dim) + 2 * C * s.key_dim +
           C + s.value_dim;
  }
  SequenceBackward(const Layer<S>& layer, const SequenceRows& q, int64_t key_head, A* work)
      : l_(layer),
        q_(q),
        key_head_(key_head),
        size_(layer.shape.key_dim * layer.shape.value_dim),
        chunks_((q.rows + C - 1) / C),
        states_(work),
        dstates_(states_ + heads() * chunks_ * size_),
        dq_(dstates_ + heads() * size_),
        dk_(dq_ + C * layer.shape.key_dim),
        decays_(dk_ + C * layer.shape.key_dim),
        row_(decays_ + C),
        m_(row_ + layer.shape.value_dim, layer.shape.key_dim, layer.shape.value_dim) {}

  void run() {
    for (int64_t h = 0; h < heads(); ++h)
      for (int64_t i = 1; i < chunks_; ++i)
        delta_state(l_.chunk(q_.row + (i - 1) * C, number(h)), state(h, i), i > 1 ? state(h, i - 1) : nullptr,
                    row_);
    std::fill_n(dstates_, heads() * size_, A(0));
    for (int64_t i = chunks_ - 1; i >= 0; --i) run_chunk(i);
  }

 private:
  int64_t heads() const { return l_.shape.heads_per_key(); }
  int64_t number(int64_t h) const { return key_head_ * heads() + h; }
  A* state(int64_t h, int64_t chunk) const { return states_ + (h * chunks_ + chunk) * size_; }

  void run_chunk(int64_t i) {
    const int64_t first = q_.row + i * C, rows = std::min(C, q_.rows - i * C), dk = l_.shape.key_dim;
    std::fill_n(dq_, rows * dk, A(0));
    std::fill_n(dk_, rows * dk, A(0));
    for (int64_t h = 0; h < heads(); ++h) {
      load_rows(first, rows, number(h));
      ChunkBackward<A>(m_, rows, dk, l_.shape.value_dim)
          .run(decays_, i > 0 ? state(h, i) : nullptr, dstates_ + h * size_, dq_, dk_);
      store_head(first, rows, number(h));
    }
    for (int64_t t = 0; t < rows; ++t) {
      S* const to = l_.dqkv + (first + t) * l_.shape.qkv_width();
      for (int64_t a = 0; a < dk; ++a) {
        to[l_.q_column(key_head_) + a] = store<S>(dq_[t * dk + a]);
        to[l_.k_column(key_head_) + a] = store<S>(dk_[t * dk + a]);
      }
    }
  }

  void load_rows(int64_t first, int64_t rows, int64_t head) {
    const DeltaShape& s = l_.shape;
    const auto widen = [](A* to, const S* from, int64_t count) {
      for (int64_t i = 0; i < count; ++i) to[i] = load(from[i]);
    };
    for (int64_t t = 0; t < rows; ++t) {
      const S* const row = l_.qkv + (first + t) * s.qkv_width();
      const int64_t at = (first + t) * s.value_heads + head;
      widen(m_.q + t * s.key_dim, row + l_.q_column(key_head_), s.key_dim);
      widen(m_.k + t * s.key_dim, row + l_.k_column(key_head_), s.key_dim);
      widen(m_.v + t * s.value_dim, row + l_.v_column(head), s.value_dim);
      widen(m_.u + t * s.value_dim, l_.u + at * s.value_dim, s.value_dim);
      widen(m_.d_o + t * s.value_dim, l_.d_o + at * s.value_dim, s.value_dim);
      m_.beta[t] = l_.beta[at];
      decays_[t] = l_.decays[at];
    }
  }

  void store_head(int64_t first, int64_t rows, int64_t head) {
    const DeltaShape& s = l_.shape;
    for (int64_t t = 0; t < rows; ++t) {
      const int64_t at = (first + t) * s.value_heads + head;
      S* const dv = l_.dqkv + (first + t) * s.qkv_width() + l_.v_column(head);
      for (int64_t d = 0; d < s.value_dim; ++d) dv[d] = store<S>(m_.z[t * s.value_dim + d]);
      l_.dbeta[at] = m_.beta[t];
      l_.dg[at] = m_.dg[t];
    }
  }

  const Layer<S>& l_;
  const SequenceRows& q_;
  int64_t key_head_, size_, chunks_;
  A *states_, *dstates_, *dq_, *dk_, *decays_, *row_;
  Matrices<A> m_;
};

}  // namespace

void delta_rule_backward(Ctx& ctx, Tensor dqkv, Tensor dbeta, Tensor dg, CTensor d_o, CTensor qkv,
                         CTensor beta, CTensor u, CTensor decays, CTensor cu_seqlens, DeltaShape shape) {
  const std::vector<SequenceRows> sequences = packed_sequences(cu_seqlens, qkv.dim(0));
  int64_t longest = 0;
  for (const SequenceRows& q : sequences) longest = std::max(longest, q.rows);
  dispatch_storage(qkv.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    ArenaScope scope(ctx.scratch);
    const ThreadBuffers<A> buffers(ctx, SequenceBackward<S>::work_size(shape, (longest + C - 1) / C));
    const Layer<S> layer{dqkv.as<S>(), dbeta.as<A>(), dg.as<A>(),     d_o.as<S>(), qkv.as<S>(),
                         u.as<S>(),    beta.as<A>(),  decays.as<A>(), shape};
    parallel_for(ctx.threads, std::ssize(sequences) * shape.key_heads, [&](int64_t i) {
      SequenceBackward<S>(layer, sequences[static_cast<size_t>(i / shape.key_heads)], i % shape.key_heads,
                          buffers.mine())
          .run();
    });
  });
}

}  // namespace temper::cpu
