#pragma once
// Element by element operations.

#include "src/ops/dispatch.h"

namespace temper {

/// y = round(a + b), any equal shapes; y may be the memory of a or of b
void add(Ctx& c, Tensor y, CTensor a, CTensor b);

}  // namespace temper
