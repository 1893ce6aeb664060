#pragma once
// A kernel as bad for its successors as one may be: it lets them start at once, waits, and writes last.

#include "src/core/lane.h"
#include "src/core/tensor.h"

namespace temper {

/// to = from (same size, multiples of 16 bytes), some milliseconds after the next kernel may have started.
void copy_late(Lane& lane, const Tensor& to, const CTensor& from);

}  // namespace temper
