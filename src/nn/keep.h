#pragma once
// What layers keep for their backward is chosen outside of them (models/recompute.h): a layer only says which
// of its memory holds what products give, and which is made of that again.

#include "src/core/ctx.h"
#include "src/nn/router_notes.h"

namespace temper {

/// Memory for what backward reads. Null: it is not kept, and lies in scratch.
struct Keep {
  Arena* products = nullptr;  // what products give, and numbers of a row such as those of norms
  Arena* rest = nullptr;      // what is made of these element by element
  RouterNotes router = {};    // of a layer of experts
  static Keep all(Arena& arena) { return {.products = &arena, .rest = &arena}; }
  Arena& for_products(const Ctx& c) const { return products ? *products : c.scratch; }
  Arena& for_rest(const Ctx& c) const { return rest ? *rest : c.scratch; }
};

}  // namespace temper
