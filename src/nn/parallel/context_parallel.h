#pragma once
// What context parallel ranks exchange, and when (Ulysses; Jacobs et al., DeepSpeed-Ulysses, 2023). Outside
// of attention each rank has its share of a pack's tokens; attention takes all tokens of the rank's own
// heads:
//   forward    q,k,v: tokens -> heads; out: heads -> tokens
//   backward   dout: tokens -> heads; dq,dk,dv: heads -> tokens
// A forward only copies, so that its bits are those of one rank. Where ranks have the same head of keys, its
// gradients are sums over them, in ascending rank order, rounded once.

#include "src/core/ctx.h"
#include "src/core/flat_range.h"
#include "src/nn/batch.h"
#include "src/nn/splits.h"

namespace temper {

/// Heads that a rank attends with, of those of all: neighbours have the same head of keys if there are fewer
/// of them than ranks.
AttentionShape own_heads(const AttentionShape& all, int ranks);

/// The heads of attention as a rank has them before and after an exchange. Without context parallel ranks,
/// and with pages, each tensor stays what it is. Rows are [.., (H + 2 Hkv) dh], or [.., H dh] of queries
/// alone.
class HeadExchange {
 public:
  HeadExchange(const AttentionShape& all, Collectives* cp) : all_(all), cp_(cp) {}

  bool on(const Batch& b) const { return cp_ && cp_->size() > 1 && !b.kv; }
  /// What attention works on.
  AttentionShape own(const Batch& b) const { return on(b) ? own_heads(all_, cp_->size()) : all_; }
  /// All heads of own tokens -> own heads of all tokens, in `memory`.
  Tensor to_heads(Ctx& c, Arena& memory, const Batch& b, const Tensor& of_tokens, const char* what) const;
  /// The inverse. Keys and values that several ranks have become sums over these ranks.
  Tensor to_tokens(Ctx& c, Arena& memory, const Batch& b, const Tensor& of_heads, const char* what) const;

 private:
  void add_copies(Ctx& c, const Tensor& of_tokens, std::span<const CTensor> blocks) const;

  AttentionShape all_;
  Collectives* cp_;
};

/// values [n]: those of every rank's range are copied to all ranks. `ranges`: by rank.
void gather_targets(Ctx& c, Collectives& cp, const Tensor& values, std::span<const FlatRange> ranges);

}  // namespace temper
