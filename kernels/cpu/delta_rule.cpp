#include "kernels/cpu/delta_chunk.h"
#include "kernels/cpu/delta_sequences.h"
#include "kernels/cpu/hybrid.h"
#include "kernels/cpu/linear.h"

namespace temper::cpu {
namespace {

/// Inputs and output of one layer.
template <class S>
struct Rows {
  using A = Accumulate<S>;
  const S* qkv;
  const A *beta, *g;
  S* o;
  DeltaShape shape;

  const S* key(int64_t t, int64_t head) const {
    return qkv + t * shape.qkv_width() + shape.key_width() + head / shape.heads_per_key() * shape.key_dim;
  }
  DeltaRow<S> at(int64_t t, int64_t head) const {
    const S* const row = qkv + t * shape.qkv_width();
    const int64_t gate = t * shape.value_heads + head;
    return {.q = row + head / shape.heads_per_key() * shape.key_dim,
            .v = row + 2 * shape.key_width() + head * shape.value_dim,
            .beta = beta[gate],
            .g = g[gate],
            .o = o + gate * shape.value_dim};
  }
};

template <class S>
DeltaChunk<S> chunk_of(const DeltaShape& shape) {
  return {.keys = nullptr,
          .writes = nullptr,
          .decays = nullptr,
          .key_row = shape.qkv_width(),
          .write_row = shape.value_width(),
          .decay_row = shape.value_heads,
          .key_dim = shape.key_dim,
          .value_dim = shape.value_dim};
}

/// Elements of work: the states of so many heads, what rows read of one, and what a row takes.
int64_t work_size(const DeltaShape& s, int64_t heads) {
  return (heads + 1) * s.key_dim * s.value_dim + 2 * s.value_dim;
}

}  // namespace

void delta_rule_forward(Ctx& ctx, Tensor o, Tensor u, Tensor decays, CTensor qkv, CTensor beta, CTensor g,
                        CTensor cu_seqlens, DeltaShape shape) {
  const std::vector<SequenceRows> sequences = packed_sequences(cu_seqlens, qkv.dim(0));
  dispatch_storage(qkv.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    ArenaScope scope(ctx.scratch);
    const ThreadBuffers<A> buffers(ctx, work_size(shape, 1));
    const Rows<S> rows{qkv.as<S>(), beta.as<A>(), g.as<A>(), o.as<S>(), shape};
    const int64_t size = shape.key_dim * shape.value_dim;
    parallel_for(ctx.threads, std::ssize(sequences) * shape.value_heads, [&](int64_t i) {
      const SequenceRows& q = sequences[static_cast<size_t>(i / shape.value_heads)];
      const int64_t head = i % shape.value_heads;
      DeltaChunk<S> all = chunk_of<S>(shape);
      all.keys = rows.key(q.row, head);
      all.writes = u.as<S>() + (q.row * shape.value_heads + head) * shape.value_dim;
      all.decays = decays.as<A>() + q.row * shape.value_heads + head;
      A *const state = buffers.mine(), *const read = state + size, *const work = read + size;
      for (int64_t t = 0; t < q.rows; ++t) {
        const int64_t first = t / kDeltaChunk * kDeltaChunk;
        const DeltaChunk<S> chunk = all.from(first);
        if (t == first && t > 0) {
          delta_state(all.from(first - kDeltaChunk), state, first > kDeltaChunk ? state : nullptr, work);
          read_state<S>(read, state, size);
        }
        delta_row(chunk, t - first, rows.at(q.row + t, head), first > 0 ? read : nullptr, work);
      }
    });
  });
}

namespace {

/// A sequence's rows through the value heads of one key head, chunk by chunk: the keys of a chunk are there
/// for all of these heads before the next one's take their place.
template <class S>
class PagedRule {
  using A = Accumulate<S>;

 public:
  PagedRule(const Rows<S>& rows, const DeltaTails<S>& tails, size_t n, int64_t key_head, A* work)
      : rows_(rows),
        tails_(tails),
        n_(n),
        key_head_(key_head),
        size_(rows.shape.key_dim * rows.shape.value_dim),
        state_(work),
        read_(state_ + rows.shape.heads_per_key() * size_),
        work_(read_ + size_) {}

  void run(const SequenceRows& q) {
    bool has_state = q.first_position() >= kDeltaChunk, moved = false;
    for (int64_t h = 0; has_state && h < heads(); ++h)
      std::copy_n(tails_.state_before(n_) + number(h) * size_, size_, state_ + h * size_);
    for (int64_t u = 0; u < q.rows;) {
      const int64_t t = (q.first_position() + u) % kDeltaChunk, count = std::min(kDeltaChunk - t, q.rows - u);
      copy_keys(q.row + u, t, count);
      for (int64_t h = 0; h < heads(); ++h) run_head(h, q.row + u, t, count, has_state);
      u += count;
      if (t + count == kDeltaChunk) has_state = moved = true;
    }
    for (int64_t h = 0; moved && h < heads(); ++h)
      std::copy_n(state_ + h * size_, size_, tails_.state_after(n_) + number(h) * size_);
  }

 private:
  int64_t heads() const { return rows_.shape.heads_per_key(); }
  int64_t number(int64_t h) const { return key_head_ * heads() + h; }

  void copy_keys(int64_t row, int64_t t, int64_t count) {
    const DeltaShape& s = rows_.shape;
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(rows_.key(row + i, number(0)), s.key_dim,
                  tails_.keys(n_) + (t + i) * s.key_width() + key_head_ * s.key_dim);
  }

  /// Rows [t, t + count) of a chunk.
  void run_head(int64_t h, int64_t row, int64_t t, int64_t count, bool has_state) {
    const DeltaShape& s = rows_.shape;
    DeltaChunk<S> chunk = chunk_of<S>(s);
    chunk.keys = tails_.keys(n_) + key_head_ * s.key_dim;
    chunk.key_row = s.key_width();
    chunk.writes = tails_.writes(n_) + number(h) * s.value_dim;
    chunk.decays = tails_.decays(n_) + number(h);
    A* const state = state_ + h * size_;
    if (has_state) read_state<S>(read_, state, size_);
    for (int64_t i = 0; i < count; ++i)
      delta_row(chunk, t + i, rows_.at(row + i, number(h)), has_state ? read_ : nullptr, work_);
    if (t + count == kDeltaChunk) delta_state(chunk, state, has_state ? state : nullptr, work_);
  }

  const Rows<S>& rows_;
  const DeltaTails<S>& tails_;
  size_t n_;
  int64_t key_head_, size_;
  A *state_, *read_, *work_;
};

}  // namespace

void delta_rule_paged(Ctx& ctx, Tensor o, DeltaPages pages, int64_t layer, CTensor qkv, CTensor beta,
                      CTensor g, CTensor cu_seqlens, DeltaShape shape) {
  const std::vector<SequenceRows> sequences = running_sequences(cu_seqlens, qkv.dim(0), pages);
  dispatch_storage(qkv.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    ArenaScope scope(ctx.scratch);
    const ThreadBuffers<A> buffers(ctx, work_size(shape, shape.heads_per_key()));
    const Rows<S> rows{qkv.as<S>(), beta.as<A>(), g.as<A>(), o.as<S>(), shape};
    const DeltaTails<S> tails(pages, layer);
    parallel_for(ctx.threads, std::ssize(sequences) * shape.key_heads, [&](int64_t i) {
      const auto n = static_cast<size_t>(i / shape.key_heads);
      PagedRule<S>(rows, tails, n, i % shape.key_heads, buffers.mine()).run(sequences[n]);
    });
  });
}

}  // namespace temper::cpu
