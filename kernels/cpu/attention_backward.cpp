// Backward of packed attention. A stripe is a range of query positions of one sequence; the piece of work is
// a stripe and a kv head. It recomputes the probabilities tile by tile, finishes its own dq, and sums its
// share of dk and dv over all its queries and query heads in buffers of its own; the shares are added in
// ascending order of stripes. The cut into stripes depends on the length of the sequence alone, so neither
// threads nor neighbours change a bit.

#include "kernels/cpu/attention_batch.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/linear.h"

namespace temper::cpu {
namespace {

constexpr int64_t kMaxStripes = 4;
constexpr int64_t kStripePositions = 512;  // at least, on average
constexpr int64_t kMaxPanels = 16;         // of a head: 256 / 16

/// Queries [first, end) of a sequence; its dk and dv of positions [0, end) are the groups from `share` on.
struct Stripe {
  int64_t sequence, first, end, share;
  double work() const { return static_cast<double>(end * end - first * first); }
};

/// Stripes of about equal work: query i costs i + 1 keys, so the k-th of n ends at length * sqrt(k/n).
std::vector<std::vector<Stripe>> cut_stripes(const std::vector<SequenceRows>& sequences) {
  std::vector<std::vector<Stripe>> stripes(sequences.size());
  int64_t share = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int64_t length = sequences[s].length;
    const int64_t count = std::clamp(length / kStripePositions, int64_t{1}, kMaxStripes);
    for (int64_t k = 1, first = 0; first < length; ++k) {
      const double cut =
          static_cast<double>(length) * std::sqrt(static_cast<double>(k) / static_cast<double>(count));
      const int64_t end = std::min(length, (static_cast<int64_t>(cut) + kKeyBlock) / kKeyBlock * kKeyBlock);
      stripes[s].push_back({static_cast<int64_t>(s), first, end, share});
      share += num_groups(end);
      first = end;
    }
  }
  return stripes;
}

template <class A>
struct BackwardKeys {
  GroupArray<A> key_columns;    // groups of [dh, 16]
  GroupArray<A> value_columns;  // groups of [dh, 16]
  GroupArray<A> key_rows;       // groups of [16, width]
};

/// What all pieces share.
template <class S>
struct BackwardTask {
  using A = Accumulate<S>;
  S* dqkv;
  const S *dout, *qkv, *out;
  const A* lse;
  int64_t tokens;
  AttentionShape shape;
  A scale;
  std::vector<SequenceRows> sequences;
  std::vector<int64_t> starts;               // first group of each sequence
  std::vector<std::vector<Stripe>> stripes;  // of each sequence
  int64_t heads() const { return shape.q_heads / shape.kv_heads; }
  int64_t width() const { return padded_width(shape.head_dim); }
  int64_t tile_rows() const { return heads() * positions_per_tile(heads()); }
};

template <class S>
void pack_keys(Ctx& ctx, const BackwardTask<S>& task, const BackwardKeys<Accumulate<S>>& keys) {
  const AttentionShape& shape = task.shape;
  const int64_t row = shape.qkv_width(), dh = shape.head_dim;
  const std::vector<PositionTile> groups = position_tiles(task.sequences, shape.kv_heads, kKeyGroup);
  parallel_ranges(ctx.threads, static_cast<int64_t>(groups.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PositionTile& t = groups[static_cast<size_t>(i)];
      const auto s = static_cast<size_t>(t.sequence);
      const S* k = task.qkv + task.sequences[s].row_of(t.first) * row + shape.q_width() + t.kv_head * dh;
      const int64_t g = task.starts[s] + t.first / kKeyGroup;
      pack_columns(keys.key_columns.at(t.kv_head, g), k, row, t.positions, dh);
      pack_columns(keys.value_columns.at(t.kv_head, g), k + shape.kv_width(), row, t.positions, dh);
      pack_rows_padded(keys.key_rows.at(t.kv_head, g), k, row, t.positions, dh);
    }
  });
}

/// s and dp of one row become p and ds; keys that the row does not see get zeros.
template <class A>
void score_gradients(A* s, A* dp, int64_t keys, int64_t seen, A scale, A lse, A delta) {
  for (int64_t j = 0; j < keys; ++j) {
    const A p = j < seen ? exponential(s[j] * scale - lse) : A(0);
    dp[j] = j < seen ? p * (dp[j] - delta) : A(0);
    s[j] = p;
  }
}

/// The panels of a row-major matrix of `width` columns.
template <class A>
struct RowPanels {
  const A* at[kMaxPanels];
  int64_t width;
  RowPanels(const A* data, int64_t columns) : width(columns) {
    for (int64_t i = 0; i < columns / kLanes; ++i) at[i] = data + i * kLanes;
  }
  RightPanels<A> right() const { return {at, static_cast<int>(width / kLanes), width}; }
};

/// One stripe and kv head. Row r of a tile is query head r % heads of the tile's position r / heads.
template <class S>
class StripeBackward {
  using A = Accumulate<S>;

 public:
  StripeBackward(const BackwardTask<S>& task, const BackwardKeys<A>& keys, int64_t kv_head, A* workspace)
      : task_(task),
        keys_(keys),
        kv_head_(kv_head),
        heads_(task.heads()),
        dh_(task.shape.head_dim),
        width_(task.width()) {
    auto take = [&](int64_t row) {
      A* part = workspace;
      workspace += task.tile_rows() * row;
      return part;
    };
    q_ = take(width_), dout_ = take(width_), dq_ = take(width_);
    p_ = take(kKeyBlock), ds_ = take(kKeyBlock);
    lse_ = take(1), delta_ = take(1);
  }
  static int64_t workspace(const BackwardTask<S>& task) {
    return task.tile_rows() * (3 * task.width() + 2 * kKeyBlock + 2);
  }

  /// dk, dv: [end, width], this stripe's shares, overwritten.
  void run(const Stripe& stripe, A* dk, A* dv) {
    std::fill_n(dk, num_groups(stripe.end) * kKeyGroup * width_, A(0));
    std::fill_n(dv, num_groups(stripe.end) * kKeyGroup * width_, A(0));
    const auto s = static_cast<size_t>(stripe.sequence);
    const int64_t step = positions_per_tile(heads_);
    for (int64_t first = stripe.first; first < stripe.end; first += step) {
      const int64_t end = std::min(first + step, stripe.end);
      first_ = first;
      rows_ = (end - first) * heads_;
      load_rows(task_.sequences[s].row + first);
      for (int64_t b = 0; b < end; b += kKeyBlock)
        add_block(b, std::min(kKeyBlock, end - b), task_.starts[s] + b / kKeyGroup, dk + b * width_,
                  dv + b * width_);
      store_dq(task_.sequences[s].row + first);
    }
  }

 private:
  void load_rows(int64_t token) {
    const AttentionShape& shape = task_.shape;
    std::fill_n(q_, rows_ * width_, A(0));
    std::fill_n(dout_, rows_ * width_, A(0));
    std::fill_n(dq_, rows_ * width_, A(0));
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t t = token + r / heads_, h = kv_head_ * heads_ + r % heads_;
      const S* q = task_.qkv + t * shape.qkv_width() + h * dh_;
      const S* out = task_.out + t * shape.q_width() + h * dh_;
      const S* dout = task_.dout + t * shape.q_width() + h * dh_;
      A lanes[kLanes] = {};
      for (int64_t d = 0; d < dh_; ++d) {
        q_[r * width_ + d] = load(q[d]);
        dout_[r * width_ + d] = load(dout[d]);
        lanes[d % kLanes] = std::fma(load(dout[d]), load(out[d]), lanes[d % kLanes]);
      }
      delta_[r] = tree_sum(lanes);
      lse_[r] = task_.lse[h * task_.tokens + t];
    }
  }

  /// Keys [begin, begin + count), which are the groups from g on: dq, dk and dv get their part.
  void add_block(int64_t begin, int64_t count, int64_t g, A* dk, A* dv) {
    const A *key_columns[kKeyBlock / kKeyGroup], *value_columns[kKeyBlock / kKeyGroup];
    const int groups = static_cast<int>(num_groups(count));
    const int64_t keys = groups * kKeyGroup;
    for (int i = 0; i < groups; ++i) {
      key_columns[i] = keys_.key_columns.at(kv_head_, g + i);
      value_columns[i] = keys_.value_columns.at(kv_head_, g + i);
    }
    product<Start::zero, A, A>(p_, kKeyBlock, rows_, {q_, width_, 1}, {key_columns, groups, kKeyGroup}, dh_);
    product<Start::zero, A, A>(ds_, kKeyBlock, rows_, {dout_, width_, 1}, {value_columns, groups, kKeyGroup},
                               dh_);
    for (int64_t r = 0; r < rows_; ++r)
      score_gradients(p_ + r * kKeyBlock, ds_ + r * kKeyBlock, keys, first_ + r / heads_ + 1 - begin,
                      task_.scale, lse_[r], delta_[r]);
    const RowPanels<A> key_rows(keys_.key_rows.at(kv_head_, g), width_), q(q_, width_), dout(dout_, width_);
    product<Start::old_value, A, A>(dq_, width_, rows_, {ds_, kKeyBlock, 1}, key_rows.right(), keys);
    product<Start::old_value, A, A>(dk, width_, keys, {ds_, 1, kKeyBlock}, q.right(), rows_);
    product<Start::old_value, A, A>(dv, width_, keys, {p_, 1, kKeyBlock}, dout.right(), rows_);
  }

  void store_dq(int64_t token) {
    for (int64_t r = 0; r < rows_; ++r) {
      S* to = task_.dqkv + (token + r / heads_) * task_.shape.qkv_width() +
              (kv_head_ * heads_ + r % heads_) * dh_;
      for (int64_t d = 0; d < dh_; ++d) to[d] = store<S>(dq_[r * width_ + d] * task_.scale);
    }
  }

  const BackwardTask<S>& task_;
  const BackwardKeys<A>& keys_;
  int64_t kv_head_, heads_, dh_, width_;
  int64_t first_ = 0, rows_ = 0;  // of the tile
  A *q_, *dout_, *dq_;            // [rows, width]
  A *p_, *ds_;                    // [rows, kKeyBlock]
  A *lse_, *delta_;               // [rows]
};

/// Every stripe for every kv head, the most work first.
template <class S>
void run_stripes(Ctx& ctx, const BackwardTask<S>& task, const GroupArray<Accumulate<S>>& dk,
                 const GroupArray<Accumulate<S>>& dv) {
  using A = Accumulate<S>;
  const int64_t kv_heads = task.shape.kv_heads, dh = task.shape.head_dim;
  const BackwardKeys<A> keys{{ctx.scratch, kv_heads, task.starts.back(), kKeyGroup * dh},
                             {ctx.scratch, kv_heads, task.starts.back(), kKeyGroup * dh},
                             {ctx.scratch, kv_heads, task.starts.back(), kKeyGroup * task.width()}};
  pack_keys(ctx, task, keys);
  std::vector<Stripe> order;
  for (const std::vector<Stripe>& stripes : task.stripes)
    order.insert(order.end(), stripes.begin(), stripes.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const Stripe& a, const Stripe& b) { return a.work() > b.work(); });
  const ThreadBuffers<A> buffers(ctx, StripeBackward<S>::workspace(task));
  parallel_for(ctx.threads, static_cast<int64_t>(order.size()) * kv_heads, [&](int64_t i) {
    const Stripe& stripe = order[static_cast<size_t>(i / kv_heads)];
    const int64_t kv_head = i % kv_heads;
    StripeBackward<S>(task, keys, kv_head, buffers.mine())
        .run(stripe, dk.at(kv_head, stripe.share), dv.at(kv_head, stripe.share));
  });
}

/// to[u] = round(factor * the sum of the shares of group g) for the positions of a tile, shares ascending.
template <class S>
void add_shares(S* to, const BackwardTask<S>& task, const GroupArray<Accumulate<S>>& shares,
                const PositionTile& t, Accumulate<S> factor) {
  using A = Accumulate<S>;
  const int64_t dh = task.shape.head_dim, group = t.first / kKeyGroup;
  for (int64_t u = 0; u < t.positions; ++u, to += task.shape.qkv_width()) {
    A sums[kMaxPanels * kLanes] = {};
    for (const Stripe& stripe : task.stripes[static_cast<size_t>(t.sequence)]) {
      if (stripe.end <= t.first) continue;
      const A* share = shares.at(t.kv_head, stripe.share + group) + u * task.width();
      for (int64_t d = 0; d < dh; ++d) sums[d] += share[d];
    }
    for (int64_t d = 0; d < dh; ++d) to[d] = store<S>(sums[d] * factor);
  }
}

template <class S>
void backward(Ctx& ctx, const BackwardTask<S>& task) {
  using A = Accumulate<S>;
  ArenaScope scope(ctx.scratch);
  const AttentionShape& shape = task.shape;
  int64_t shares = 0;
  for (const std::vector<Stripe>& stripes : task.stripes)
    for (const Stripe& stripe : stripes) shares += num_groups(stripe.end);
  const GroupArray<A> dk(ctx.scratch, shape.kv_heads, shares, kKeyGroup * task.width());
  const GroupArray<A> dv(ctx.scratch, shape.kv_heads, shares, kKeyGroup * task.width());
  run_stripes(ctx, task, dk, dv);
  const std::vector<PositionTile> groups = position_tiles(task.sequences, shape.kv_heads, kKeyGroup);
  parallel_ranges(ctx.threads, static_cast<int64_t>(groups.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PositionTile& t = groups[static_cast<size_t>(i)];
      S* to = task.dqkv +
              task.sequences[static_cast<size_t>(t.sequence)].row_of(t.first) * shape.qkv_width() +
              shape.q_width() + t.kv_head * shape.head_dim;
      add_shares(to, task, dk, t, task.scale);
      add_shares(to + shape.kv_width(), task, dv, t, A(1));
    }
  });
}

}  // namespace

void attention_varlen_backward(Ctx& ctx, Tensor dqkv, CTensor dout, CTensor qkv, CTensor out, CTensor lse,
                               CTensor cu_seqlens, AttentionShape shape, double scale) {
  dispatch_storage(qkv.dtype, [&](auto s) {
    using S = decltype(s);
    using A = Accumulate<S>;
    BackwardTask<S> task{.dqkv = dqkv.as<S>(),
                         .dout = dout.as<S>(),
                         .qkv = qkv.as<S>(),
                         .out = out.as<S>(),
                         .lse = lse.as<A>(),
                         .tokens = qkv.dim(0),
                         .shape = shape,
                         .scale = static_cast<A>(scale),
                         .sequences = packed_sequences(cu_seqlens, qkv.dim(0)),
                         .starts = {},
                         .stripes = {}};
    task.starts = group_starts(task.sequences);
    task.stripes = cut_stripes(task.sequences);
    backward(ctx, task);
  });
}

}  // namespace temper::cpu
