#pragma once
// The gated delta rule as a plain recurrence: what its decode is measured beside.

#include <cstdint>

#include "src/core/lane.h"

namespace temper {

/// One row of each of `sequences`, heads of 128: S <- e^g S + k (beta (v - e^g S^T k))^T, o = S^T q.
/// states: [sequences, heads, 128, 128] fp32, read and written   o: [sequences, heads * 128] bf16
/// qkv: [sequences, (2 heads / group + heads) * 128] bf16   beta, g: [sequences, heads] fp32
void recurrence_step(Lane& lane, void* o, float* states, const void* qkv, const float* beta, const float* g,
                     int sequences, int heads, int group);

}  // namespace temper
