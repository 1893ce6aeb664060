#include "src/nn/parallel/context_parallel.h"

#include <algorithm>

#include "src/ops/elementwise.h"
#include "src/ops/rows.h"

namespace temper {
AttentionShape own_heads(const AttentionShape& all, int ranks) {
  return {all.q_heads / ranks, std::max<int64_t>(1, all.kv_heads / ranks), all.head_dim};
}

HeadExchange::HeadExchange(const std::vector<HeadColumns>& all, Collectives* cp) : cp_(cp) {
  for (const HeadColumns& kind : all) {
    const int64_t own = std::max<int64_t>(1, kind.heads / ranks()) * kind.width;
    columns_.push_back({all_width_, own_width_, own, std::max<int64_t>(1, ranks() / kind.heads)});
    all_width_ += kind.heads * kind.width, own_width_ += own;
  }
}

FlatRange HeadExchange::own_columns(size_t kind) const {
  const Columns& of = columns_.at(kind);
  const int64_t begin = of.of(cp_ ? cp_->rank() : 0);
  return {begin, begin + of.width};
}

Tensor HeadExchange::to_heads(Ctx& c, Arena& memory, const Batch& b, const Tensor& of_tokens,
                              const char* what) const {
  if (!on(b)) return of_tokens;
  CHECK_SHAPE(of_tokens, b.num_tokens(), all_width_);
  const int ranks = cp_->size();
  const int64_t own_tokens = of_tokens.dim(0);
  const Tensor of_heads = memory.make({b.all_tokens, own_width_}, of_tokens.dtype);
  ArenaScope scope(c.scratch);
  const Tensor sent = c.scratch.make({ranks * own_tokens, own_width_}, of_tokens.dtype);
  std::vector<Parcel> out, in;
  for (int peer = 0; peer < ranks; ++peer) {
    const FlatRange theirs = token_share(b.all_tokens, peer, ranks);
    const Tensor place = rows(of_heads, theirs.begin, theirs.end);
    const bool self = peer == cp_->rank();
    const Tensor block = self ? place : rows(sent, peer * own_tokens, (peer + 1) * own_tokens);
    for (const Columns& part : columns_)
      copy_columns(c, block, part.own, of_tokens, part.of(peer), part.width);
    if (self) continue;
    out.push_back(parcel(peer, block));
    in.push_back(parcel(peer, place));
  }
  cp_->exchange(c, out, in, what);
  return of_heads;
}

Tensor HeadExchange::to_tokens(Ctx& c, Arena& memory, const Batch& b, const Tensor& of_heads,
                               const char* what) const {
  if (!on(b)) return of_heads;
  CHECK_SHAPE(of_heads, b.all_tokens, own_width_);
  const int ranks = cp_->size();
  const int64_t own_tokens = b.num_tokens();
  const Tensor of_tokens = memory.make({own_tokens, all_width_}, of_heads.dtype);
  ArenaScope scope(c.scratch);
  const Tensor got = c.scratch.make({ranks * own_tokens, own_width_}, of_heads.dtype);
  std::vector<CTensor> blocks;
  std::vector<Parcel> out, in;
  for (int peer = 0; peer < ranks; ++peer) {
    const FlatRange theirs = token_share(b.all_tokens, peer, ranks);
    const CTensor mine = rows(of_heads, theirs.begin, theirs.end);
    const bool self = peer == cp_->rank();
    blocks.push_back(self ? mine : rows(got, peer * own_tokens, (peer + 1) * own_tokens));
    if (self) continue;
    out.push_back(parcel(peer, mine));
    in.push_back(parcel(peer, blocks.back()));
  }
  cp_->exchange(c, out, in, what);
  for (const Columns& part : columns_)
    for (int peer = 0; peer < ranks && part.copies == 1; ++peer)
      copy_columns(c, of_tokens, part.of(peer), blocks[static_cast<size_t>(peer)], part.own, part.width);
  add_copies(c, of_tokens, blocks);
  return of_tokens;
}

/// Sums up each head that several ranks have.
void HeadExchange::add_copies(Ctx& c, const Tensor& of_tokens, std::span<const CTensor> blocks) const {
  const auto ranks = static_cast<int>(blocks.size());
  const int64_t tokens = of_tokens.dim(0);
  for (const Columns& part : columns_) {
    if (part.copies == 1) continue;
    ArenaScope scope(c.scratch);
    const Tensor parts = c.scratch.make({part.copies * tokens, part.width}, of_tokens.dtype),
                 sum = c.scratch.make({tokens, part.width}, of_tokens.dtype);
    for (int first = 0; first < ranks; first += static_cast<int>(part.copies)) {
      for (int i = 0; i < part.copies; ++i)
        copy_columns(c, rows(parts, i * tokens, (i + 1) * tokens), 0, blocks[static_cast<size_t>(first + i)],
                     part.own, part.width);
      sum_in_order(c, make_tensor(sum.raw(), sum.dtype, {sum.size()}),
                   make_tensor(parts.raw(), parts.dtype, {part.copies, sum.size()}));
      copy_columns(c, of_tokens, part.of(first), sum, 0, part.width);
    }
  }
}

AttentionExchange::AttentionExchange(const AttentionShape& of_all, Collectives* cp)
    : all(of_all),
      qkv({{all.q_heads, all.head_dim}, {all.kv_heads, all.head_dim}, {all.kv_heads, all.head_dim}}, cp),
      out({{all.q_heads, all.head_dim}}, cp) {}

void gather_targets(Ctx& c, Collectives& cp, const Tensor& values, std::span<const FlatRange> ranges) {
  cp.all_gather_ranges(c, values, ranges, "log-probs of targets, copied from their cp owners");
}

}  // namespace temper
