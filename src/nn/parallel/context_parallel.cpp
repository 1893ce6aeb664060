#include "src/nn/parallel/context_parallel.h"

#include <algorithm>

#include "src/ops/elementwise.h"
#include "src/ops/rows.h"

namespace temper {
namespace {

/// Columns of one kind of heads: of all of them, and of those of one rank.
struct Columns {
  int64_t all = 0, own = 0;  // where they begin
  int64_t width = 0;         // of one rank
  int64_t copies = 1;        // neighbours that have the same
  /// Where those of a rank begin among all.
  int64_t of(int rank) const { return all + rank / copies * width; }
};

/// Queries, and keys and values where the rows have them: rows are `width` wide, of all heads.
std::vector<Columns> columns_of(const AttentionShape& all, int ranks, int64_t width) {
  const AttentionShape own = own_heads(all, ranks);
  std::vector<Columns> list{{0, 0, own.q_width()}};
  if (width == all.q_width()) return list;
  const int64_t copies = std::max<int64_t>(1, ranks / all.kv_heads);
  for (int64_t i = 0; i < 2; ++i)
    list.push_back(
        {all.q_width() + i * all.kv_width(), own.q_width() + i * own.kv_width(), own.kv_width(), copies});
  return list;
}

Parcel parcel(int peer, const CTensor& t) { return {peer, const_cast<void*>(t.data), t.bytes()}; }

}  // namespace

AttentionShape own_heads(const AttentionShape& all, int ranks) {
  return {all.q_heads / ranks, std::max<int64_t>(1, all.kv_heads / ranks), all.head_dim};
}

Tensor HeadExchange::to_heads(Ctx& c, Arena& memory, const Batch& b, const Tensor& of_tokens,
                              const char* what) const {
  if (!on(b)) return of_tokens;
  const int ranks = cp_->size();
  const bool queries = of_tokens.dim(1) == all_.q_width();
  const int64_t own_tokens = of_tokens.dim(0), width = queries ? own(b).q_width() : own(b).qkv_width();
  const Tensor of_heads = memory.make({b.all_tokens, width}, of_tokens.dtype);
  ArenaScope scope(c.scratch);
  const Tensor sent = c.scratch.make({ranks * own_tokens, width}, of_tokens.dtype);
  std::vector<Parcel> out, in;
  for (int peer = 0; peer < ranks; ++peer) {
    const FlatRange theirs = token_share(b.all_tokens, peer, ranks);
    const Tensor place = rows(of_heads, theirs.begin, theirs.end);
    const bool self = peer == cp_->rank();
    const Tensor block = self ? place : rows(sent, peer * own_tokens, (peer + 1) * own_tokens);
    for (const Columns& part : columns_of(all_, ranks, of_tokens.dim(1)))
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
  const int ranks = cp_->size();
  const bool queries = of_heads.dim(1) == own(b).q_width();
  const int64_t own_tokens = b.num_tokens(), width = queries ? all_.q_width() : all_.qkv_width();
  const Tensor of_tokens = memory.make({own_tokens, width}, of_heads.dtype);
  ArenaScope scope(c.scratch);
  const Tensor got = c.scratch.make({ranks * own_tokens, of_heads.dim(1)}, of_heads.dtype);
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
  for (const Columns& part : columns_of(all_, ranks, width))
    for (int peer = 0; peer < ranks && part.copies == 1; ++peer)
      copy_columns(c, of_tokens, part.of(peer), blocks[static_cast<size_t>(peer)], part.own, part.width);
  if (!queries) add_copies(c, of_tokens, blocks);
  return of_tokens;
}

/// Sums up each head of keys and values that several ranks have.
void HeadExchange::add_copies(Ctx& c, const Tensor& of_tokens, std::span<const CTensor> blocks) const {
  const auto ranks = static_cast<int>(blocks.size());
  const int64_t tokens = of_tokens.dim(0);
  for (const Columns& part : columns_of(all_, ranks, of_tokens.dim(1))) {
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

void gather_targets(Ctx& c, Collectives& cp, const Tensor& values, std::span<const FlatRange> ranges) {
  cp.all_gather_ranges(c, values, ranges, "log-probs of targets, copied from their cp owners");
}

}  // namespace temper
