#pragma once
// A packed batch again, piece by piece over pages.

#include <numeric>

#include "tests/ops/packed_attention.h"

namespace temper {

/// Scrambled pages filled with NaN; page 0 belongs to nobody.
class Pages {
 public:
  explicit Pages(const PackedAttention& batch) : batch_(batch) {
    const int64_t page = batch.what().page_tokens;
    for (int32_t n : batch.lengths()) {
      first_.push_back(total_);
      total_ += (n + page - 1) / page;
      most_ = std::max<int64_t>(most_, (n + page - 1) / page);
    }
    Ctx& c = batch.ctx();
    const int64_t width = batch.what().shape.kv_width() * page;
    keys_ = c.scratch.make({2, total_ + 1, width}, batch.what().dtype);
    values_ = c.scratch.like(keys_);
    device::fill(c.lane, keys_.raw(), 0xff, keys_.bytes());
    device::fill(c.lane, values_.raw(), 0xff, values_.bytes());
  }

  /// Rows [begin[s], end[s]) of every sequence s: appended, and their attention compared with the packed one.
  /// Returns the number of compared values.
  int64_t advance(const std::vector<int32_t>& begin, const std::vector<int32_t>& end) {
    Ctx& c = batch_.ctx();
    ArenaScope scope(c.scratch);
    std::vector<int32_t> cu{0}, lengths, table, index;
    for (size_t s = 0; s < begin.size(); ++s) {
      if (begin[s] == end[s]) continue;
      for (int32_t i = begin[s]; i < end[s]; ++i) index.push_back(batch_.cu()[s] + i);
      cu.push_back(static_cast<int32_t>(index.size()));
      lengths.push_back(end[s]);
      const int64_t used = (end[s] + batch_.what().page_tokens - 1) / batch_.what().page_tokens;
      for (int64_t p = 0; p < most_; ++p) table.push_back(p < used ? page_of(s, p) : 0);
    }
    const auto S = static_cast<int64_t>(lengths.size()), T = static_cast<int64_t>(index.size());
    const AttentionShape& shape = batch_.what().shape;
    const TestTensor places(c, table, {S, most_}), filled(c, lengths, {S}), ends(c, cu, {S + 1});
    const PagedKv kv{keys_, values_, places, filled, batch_.what().page_tokens};
    Tensor qkv = c.scratch.make({T, shape.qkv_width()}, batch_.what().dtype),
           out = c.scratch.make({T, shape.q_width()}, batch_.what().dtype);
    gather(qkv, batch_.qkv(), index);
    device::fill(c.lane, out.raw(), 0xff, out.bytes());
    append_kv(c, kv, 1, qkv, ends, shape);
    const int64_t size = dtype_size(qkv.dtype);  // keys and values must come from the pages
    device::fill_rows(c.lane, static_cast<char*>(qkv.raw()) + shape.q_width() * size, 0xff,
                      2 * shape.kv_width() * size, T, shape.qkv_width() * size);
    attention_paged(c, out, qkv, kv, 1, ends, shape, batch_.scale());
    Tensor want = c.scratch.like(out);
    gather(want, batch_.out(), index);
    EXPECT_EQ(first_difference(bytes_of(c, out), bytes_of(c, want), shape.q_width() * size), "")
        << S << " sequences, " << T << " rows, heads " << shape.q_heads << "/" << shape.kv_heads << " of "
        << shape.head_dim << ", pages of " << batch_.what().page_tokens << ", the last ends at "
        << lengths.back();
    return out.size();
  }

 private:
  int32_t page_of(size_t s, int64_t p) const {
    const int64_t at = first_[s] + p;  // an odd stride that visits every page once
    int64_t stride = 7919;
    while (std::gcd(stride, total_) != 1) ++stride;
    return static_cast<int32_t>(1 + at * stride % total_);
  }
  void gather(const Tensor& to, const Tensor& from, const std::vector<int32_t>& index) const {
    Ctx& c = batch_.ctx();
    const int64_t bytes = to.dim(1) * dtype_size(to.dtype);
    for (size_t i = 0; i < index.size();) {
      size_t n = 1;
      while (i + n < index.size() && index[i + n] == index[i] + static_cast<int32_t>(n)) ++n;
      device::copy(c.lane, static_cast<char*>(to.raw()) + static_cast<int64_t>(i) * bytes,
                   static_cast<const char*>(from.data) + index[i] * bytes, bytes * static_cast<int64_t>(n));
      i += n;
    }
  }

  const PackedAttention& batch_;
  std::vector<int64_t> first_;
  int64_t total_ = 0, most_ = 0;
  Tensor keys_, values_;  // [2, pages, Hkv * page * dh]
};

}  // namespace temper
