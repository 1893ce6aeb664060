#pragma once
// What context parallel ranks exchange, and when (Ulysses; Jacobs et al., DeepSpeed-Ulysses, 2023). Outside
// of mixers each rank has its share of a pack's tokens; a mixer takes all tokens of the rank's own heads:
//   forward    what it reads (q,k,v): tokens -> heads; out: heads -> tokens
//   backward   dout: tokens -> heads; gradients of what it read: heads -> tokens
// A forward only copies, so that its bits are those of one rank. Where ranks have the same head of keys, its
// gradients are sums over them, in ascending rank order, rounded once.

#include <span>
#include <vector>

#include "src/core/ctx.h"
#include "src/core/flat_range.h"
#include "src/nn/batch.h"
#include "src/nn/splits.h"

namespace temper {

/// Heads that a rank attends with, of those of all: neighbours have the same head of keys if there are fewer
/// of them than ranks.
AttentionShape own_heads(const AttentionShape& all, int ranks);

/// Neighbouring columns of a row: the heads of one kind.
struct HeadColumns {
  int64_t heads = 0, width = 0;  // of a head
};

/// Rows of heads as a rank has them before and after an exchange. Without context parallel ranks, and with
/// pages, each tensor stays what it is.
class HeadExchange {
 public:
  /// `all`: the columns of a row, kind by kind.
  HeadExchange(const std::vector<HeadColumns>& all, Collectives* cp);

  int ranks() const { return cp_ ? cp_->size() : 1; }
  bool on(const Batch& b) const { return ranks() > 1 && !b.kv; }
  /// Where this rank's heads of a kind are among the columns of all.
  FlatRange own_columns(size_t kind) const;
  /// All heads of own tokens -> own heads of all tokens, in `memory`.
  Tensor to_heads(Ctx& c, Arena& memory, const Batch& b, const Tensor& of_tokens, const char* what) const;
  /// The inverse. Columns that several ranks have become sums over these ranks.
  Tensor to_tokens(Ctx& c, Arena& memory, const Batch& b, const Tensor& of_heads, const char* what) const;

 private:
  /// Columns of one kind: of all heads, and of those of one rank.
  struct Columns {
    int64_t all = 0, own = 0;  // where they begin
    int64_t width = 0;         // of one rank
    int64_t copies = 1;        // neighbours that have the same
    /// Where those of a rank begin among all.
    int64_t of(int rank) const { return all + rank / copies * width; }
  };
  void add_copies(Ctx& c, const Tensor& of_tokens, std::span<const CTensor> blocks) const;

  std::vector<Columns> columns_;
  int64_t all_width_ = 0, own_width_ = 0;
  Collectives* cp_;
};

/// The heads of attention: rows of q, k and v, and rows of what it makes.
struct AttentionExchange {
  AttentionExchange(const AttentionShape& of_all, Collectives* cp);
  bool on(const Batch& b) const { return qkv.on(b); }
  /// What attention works on.
  AttentionShape own(const Batch& b) const { return on(b) ? own_heads(all, qkv.ranks()) : all; }

  AttentionShape all;
  HeadExchange qkv, out;
};

/// values [n]: those of every rank's range are copied to all ranks. `ranges`: by rank.
void gather_targets(Ctx& c, Collectives& cp, const Tensor& values, std::span<const FlatRange> ranges);

}  // namespace temper
