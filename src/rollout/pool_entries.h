#pragma once
// Pools of a cache: pages of keys and values, tails and states of gated delta nets. [L, entries, size]

#include "src/core/lane.h"
#include "src/core/tensor.h"

namespace temper {

/// Entry `to` of every layer becomes entry `from`.
void copy_entry(Lane& lane, const Tensor& pool, int64_t to, int64_t from);
/// Entry `to` of every layer becomes NaN bit patterns.
void poison_entry(Lane& lane, const Tensor& pool, int64_t to);

}  // namespace temper
