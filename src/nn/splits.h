#pragma once
// How the ranks of a model share the work inside a layer. Layers see these collectives and nothing else of
// other ranks; null: not shared.

#include "src/comm/collectives.h"

namespace temper {

struct Splits {
  Collectives* tp = nullptr;  // output rows of matrices
  int tp_ranks() const { return tp ? tp->size() : 1; }
};

}  // namespace temper
