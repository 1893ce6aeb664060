#pragma once
// How the ranks of a model share the work inside a layer. Layers see these collectives and nothing else of
// other ranks; null: not shared.

#include "src/comm/collectives.h"
#include "src/nn/batch.h"
#include "src/nn/parameter.h"

namespace temper {

struct Splits {
  Collectives* tp = nullptr;             // heads, rows of matrices, chunks of the vocabulary
  Collectives* cp = nullptr;             // tokens of a batch without pages
  Collectives* ep = nullptr;             // blocks of experts
  bool ep_spans_batches = false;         // ranks of ep work on different batches: all make every pass
  Collectives* owners = nullptr;         // shards of weights while they are trained (ZeRO-3)
  Collectives* expert_owners = nullptr;  // likewise, of experts
  int tp_ranks() const { return tp ? tp->size() : 1; }
  int cp_ranks() const { return cp ? cp->size() : 1; }
  bool shares() const { return tp_ranks() > 1; }
  bool shares(const StreamRows& stream) const { return tp_ranks() > 1 && stream.shared; }
  /// Rows of the stream that this rank has.
  FlatRange own_tokens(const StreamRows& stream) const {
    return shares(stream) ? token_share(stream.tokens, tp->rank(), tp->size()) : FlatRange{0, stream.tokens};
  }
  int ep_ranks() const { return ep ? ep->size() : 1; }
  /// Ranks of ep generate different tokens: all make every step.
  bool ep_spans_teams() const { return tp_ranks() % ep_ranks() != 0; }
  ShardPlace place() const { return {tp ? tp->rank() : 0, tp_ranks(), {}, ep ? ep->rank() : 0, ep_ranks()}; }
};

}  // namespace temper
