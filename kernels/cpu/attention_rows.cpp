#include "kernels/cpu/attention_rows.h"

#include <limits>

#include "kernels/cpu/attention_tile.h"

namespace temper::cpu {
namespace {

constexpr int64_t kMaxPanels = 16;  // of a head: 256 / 16

/// x rounded to storage, in the accumulate dtype; in the form that the compiler turns into vector
/// instructions.
template <class S, class A>
A rounded(A x) {
  if constexpr (std::is_same_v<S, bf16>) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t even = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
    return x == x ? std::bit_cast<float>(even) : x;
  } else {
    return x;
  }
}

/// max(m, a * b) of each element; m where the product is NaN.
template <class A>
Vec<A> larger_product(Vec<A> m, const Vec<A>& a, const Vec<A>& b) {
  if constexpr (requires { a.v* b.v; }) {
    const auto product = a.v * b.v;
    m.v = product > m.v ? product : m.v;
  } else {
    for (int i = 0; i < Vec<A>::kWidth; ++i) m.v[i] = a.v[i] * b.v[i] > m.v[i] ? a.v[i] * b.v[i] : m.v[i];
  }
  return m;
}

/// The largest t = score * scale of a row, and `m` if that is larger.
template <class A>
A row_maximum(const A* scores, int64_t groups, A scale, A m) {
  Vec<A> max[kParts<A>];
  std::fill_n(max, kParts<A>, Vec<A>::all(m));
  for (int64_t i = 0; i < groups * kParts<A>; i += kParts<A>)
    for (int p = 0; p < kParts<A>; ++p)
      max[p] = larger_product(max[p], Vec<A>::load(scores + (i + p) * Vec<A>::kWidth), Vec<A>::all(scale));
  A lanes[kLanes];
  for (int p = 0; p < kParts<A>; ++p) max[p].store(lanes + p * Vec<A>::kWidth);
  for (int span = kLanes / 2; span > 0; span /= 2)
    for (int i = 0; i < span; ++i) lanes[i] = std::max(lanes[i], lanes[i + span]);
  return lanes[0];
}

/// Scores of a row become probabilities e^(t - max) rounded to storage; returns the sum before rounding.
template <class S, class A>
A row_probabilities(A* scores, int64_t groups, A scale, A max) {
  A lanes[kLanes] = {};
  for (int64_t g = 0; g < groups; ++g) {
    A* p = scores + g * kLanes;
    for (int i = 0; i < kLanes; ++i) {
      const A e = exponential(p[i] * scale - max);
      lanes[i] += e;
      p[i] = rounded<S>(e);
    }
  }
  return tree_sum(lanes);
}

/// A tile of query rows on its way over the keys. Row r is query head r % heads of position r / heads.
template <class S, class W>
class RowTile {
  using A = Accumulate<S>;

 public:
  RowTile(const QueryRows<S>& rows, const KeyGroups<W>& keys, A scale, A* workspace)
      : in_(rows),
        keys_(keys),
        scale_(scale),
        rows_(rows.heads * rows.positions),
        width_(padded_width(rows.head_dim)) {
    auto take = [&](int64_t elements) {
      A* part = workspace;
      workspace += elements;
      return part;
    };
    q_ = take(rows_ * width_);
    o_ = take(rows_ * width_);
    total_o_ = take(rows_ * width_);
    scores_ = take(kProductRows<A> * kKeyBlock);
    max_ = take(rows_);
    sum_ = take(rows_);
    total_max_ = take(rows_);
    total_sum_ = take(rows_);
  }

  void run() {
    load_queries();
    const int64_t end = in_.first + in_.positions;
    for (int64_t split = 0; split < end; split += kKeySplit) {
      std::fill_n(max_, rows_, -std::numeric_limits<A>::infinity());
      std::fill_n(sum_, rows_, A(0));
      std::fill_n(o_, rows_ * width_, A(0));
      const int64_t split_end = std::min(split + kKeySplit, end);
      for (int64_t b = split; b < split_end; b += kKeyBlock) add_block(b, std::min(b + kKeyBlock, split_end));
      split == 0 ? copy_split() : merge_split();
    }
    finish();
  }

 private:
  void load_queries() {
    for (int64_t r = 0; r < rows_; ++r) {
      const S* from = in_.q + r / in_.heads * in_.q_row + r % in_.heads * in_.head_dim;
      for (int64_t d = 0; d < in_.head_dim; ++d) q_[r * width_ + d] = load(from[d]);
    }
  }

  /// Keys of the block at `begin` that row r sees.
  int64_t seen(int64_t r, int64_t begin) const {
    return std::min(kKeyBlock, in_.first + r / in_.heads + 1 - begin);
  }

  /// Where the groups of a block lie.
  struct Block {
    const W* keys[kBlockGroups];
    const W* values[kBlockGroups];
    int groups = 0;
  };

  Block locate(int64_t begin, int64_t end) const {
    Block block;
    int64_t page = begin / kKeyGroup / keys_.page_groups, slot = begin / kKeyGroup % keys_.page_groups;
    for (; begin < end; begin += kKeyGroup) {
      const int64_t base = keys_.pages[page] * keys_.page_stride;
      block.keys[block.groups] = keys_.keys + base + slot * keys_.key_group;
      block.values[block.groups++] = keys_.values + base + slot * kKeyGroup * keys_.value_row;
      if (++slot < keys_.page_groups) continue;
      slot = 0;
      ++page;
    }
    return block;
  }

  /// Keys [begin, end). A tile of few rows waits for memory, so it fetches the block after this one
  /// meanwhile.
  void add_block(int64_t begin, int64_t end) {
    const int64_t next = begin + kKeyBlock, keys_end = in_.first + in_.positions;
    if (rows_ > kProductRows<A> || next >= keys_end) return add_block<false>(begin, locate(begin, end), {});
    const Block block = locate(begin, end);
    Block ahead = locate(next, std::min(next + kKeyBlock, keys_end));
    for (int g = ahead.groups; g < block.groups; ++g) {
      ahead.keys[g] = block.keys[g];
      ahead.values[g] = block.values[g];
    }
    add_block<true>(begin, block, ahead);
  }

  template <bool kAhead>
  void add_block(int64_t begin, const Block& block, const Block& ahead) {
    for_row_tiles<A>(rows_, [&](int64_t first, int rows) {
      product_rows<A, W, Start::zero, kAhead>(scores_, kKeyBlock, rows, {q_ + first * width_, width_, 1},
                                              {block.keys, block.groups, kKeyGroup, ahead.keys},
                                              in_.head_dim);
      add_scores(first, rows, begin, block.groups);
      const int64_t common = seen(first, begin);
      add_values<kAhead>(first, rows, scores_, {0, common}, block, ahead);
      for (int r = 1; r < rows; ++r)
        add_values<false>(first + r, 1, scores_ + r * kKeyBlock, {common, seen(first + r, begin)}, block, {});
    });
  }

  /// Scores of the block become probabilities; the rows' maxima, sums and o are brought to the new maxima.
  void add_scores(int64_t first, int rows, int64_t begin, int64_t groups) {
    for (int r = 0; r < rows; ++r) {
      A* scores = scores_ + r * kKeyBlock;
      std::fill(scores + std::min(groups * kKeyGroup, seen(first + r, begin)), scores + groups * kKeyGroup,
                -std::numeric_limits<A>::infinity());
      A* max = max_ + first + r;
      const A new_max = row_maximum(scores, groups, scale_, *max);
      const A decay = exponential(*max - new_max);
      *max = new_max;
      sum_[first + r] =
          std::fma(sum_[first + r], decay, row_probabilities<S>(scores, groups, scale_, new_max));
      A* o = o_ + (first + r) * width_;
      for (int64_t d = 0; d < width_; ++d) o[d] *= decay;
    }
  }

  struct Range {
    int64_t from, to;
  };

  /// o += p v for a range of keys of the block, in runs of groups that lie one after another.
  template <bool kAhead>
  void add_values(int64_t first, int rows, const A* p, Range keys, const Block& block, const Block& ahead) {
    const int64_t group_size = kKeyGroup * keys_.value_row;
    const W *panels[kMaxPanels], *ahead_panels[kMaxPanels];
    const int count = static_cast<int>(width_ / kLanes);
    while (keys.from < keys.to) {
      const int64_t g = keys.from / kKeyGroup;
      int64_t end = g + 1;
      while (end * kKeyGroup < keys.to && block.values[end] == block.values[end - 1] + group_size &&
             (!kAhead || ahead.values[end] == ahead.values[end - 1] + group_size))
        ++end;
      const int64_t offset = keys.from % kKeyGroup * keys_.value_row;
      for (int i = 0; i < count; ++i) panels[i] = block.values[g] + offset + i * kLanes;
      if constexpr (kAhead)
        for (int i = 0; i < count; ++i) ahead_panels[i] = ahead.values[g] + offset + i * kLanes;
      const int64_t to = std::min(keys.to, end * kKeyGroup);
      product_rows<A, W, Start::old_value, kAhead>(
          o_ + first * width_, width_, rows, {p + keys.from, kKeyBlock, 1},
          {panels, count, keys_.value_row, ahead_panels}, to - keys.from);
      keys.from = to;
    }
  }

  void copy_split() {
    std::copy_n(max_, rows_, total_max_);
    std::copy_n(sum_, rows_, total_sum_);
    std::copy_n(o_, rows_ * width_, total_o_);
  }

  void merge_split() {
    for (int64_t r = 0; r < rows_; ++r) {
      const A max = std::max(total_max_[r], max_[r]);
      const A a = exponential(total_max_[r] - max), b = exponential(max_[r] - max);
      total_max_[r] = max;
      total_sum_[r] = std::fma(sum_[r], b, total_sum_[r] * a);
      A* to = total_o_ + r * width_;
      const A* from = o_ + r * width_;
      for (int64_t d = 0; d < width_; ++d) to[d] = std::fma(from[d], b, to[d] * a);
    }
  }

  void finish() {
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t i = r / in_.heads, j = r % in_.heads;
      const A inverse = A(1) / total_sum_[r];
      S* out = in_.out + i * in_.out_row + j * in_.head_dim;
      for (int64_t d = 0; d < in_.head_dim; ++d) out[d] = store<S>(total_o_[r * width_ + d] * inverse);
      if (in_.lse) in_.lse[j * in_.lse_row + i] = total_max_[r] + std::log(total_sum_[r]);
    }
  }

  const QueryRows<S>& in_;
  const KeyGroups<W>& keys_;
  A scale_;
  int64_t rows_, width_;
  A *q_, *o_, *total_o_;       // [rows, width]
  A* scores_;                  // [kProductRows, kKeyBlock]
  A *max_, *sum_;              // [rows] of this split
  A *total_max_, *total_sum_;  // [rows] of all splits before
};

}  // namespace

int64_t attend_workspace(int64_t heads, int64_t head_dim) {
  const int64_t rows = heads * positions_per_tile(heads);
  return rows * (3 * padded_width(head_dim) + 4) + 8 * kKeyBlock;
}

template <class S, class W>
void attend(const QueryRows<S>& rows, const KeyGroups<W>& keys, double scale, Accumulate<S>* workspace) {
  RowTile<S, W>(rows, keys, static_cast<Accumulate<S>>(scale), workspace).run();
}

template void attend<float, float>(const QueryRows<float>&, const KeyGroups<float>&, double, float*);
template void attend<bf16, float>(const QueryRows<bf16>&, const KeyGroups<float>&, double, float*);
template void attend<bf16, bf16>(const QueryRows<bf16>&, const KeyGroups<bf16>&, double, float*);
template void attend<double, double>(const QueryRows<double>&, const KeyGroups<double>&, double, double*);

}  // namespace temper::cpu
