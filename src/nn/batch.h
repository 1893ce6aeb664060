#pragma once
// One model call: T tokens of S sequences, back to back, no padding. `kv == nullptr` means that the keys are
// the rows of the batch itself (training, scoring); else they come from the pages, to which this batch is
// appended.

#include "kernels/delta_types.h"
#include "kernels/types.h"

namespace temper {

struct RouterNotes;

/// Rows of the residual stream. Where they are shared each tensor parallel rank has its token_share of them,
/// which may be none.
struct StreamRows {
  int64_t tokens = 0;
  bool shared = false;
};

struct Batch {
  CTensor tokens;      // [T] i32; of context parallel ranks each has its share of all
  CTensor positions;   // [T] i32, absolute inside the sequence
  CTensor cu_seqlens;  // [S+1] i32, of all tokens
  const PagedKv* kv = nullptr;
  const DeltaPages* states = nullptr;    // of gated delta nets, where there is kv
  int64_t all_tokens = 0;                // of all context parallel ranks
  const RouterNotes* routers = nullptr;  // nn/router_notes.h, of all layers
  int64_t num_tokens() const { return tokens.dim(0); }
  /// A step of generation has few of them.
  StreamRows stream() const { return {num_tokens(), kv == nullptr}; }
};

}  // namespace temper
