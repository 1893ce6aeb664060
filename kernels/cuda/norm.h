#pragma once
// Heads and their rotation, as the norms and ropes of both directions take them.

#include "kernels/cuda/launch.h"

namespace temper::cuda {

inline constexpr int kMaxHeadDim = 256;

struct HeadShape {
  int q_heads, kv_heads, head_dim;
};
inline HeadShape heads_of(const AttentionShape& s) {
  return {static_cast<int>(s.q_heads), static_cast<int>(s.kv_heads), static_cast<int>(s.head_dim)};
}

struct RopeTables {
  const int32_t* positions;  // null: no rotation
  const float *cosine, *sine;
};
inline RopeTables tables_of(const RopeInput& rope) {
  return {data_of<int32_t>(rope.positions), data_of<float>(rope.cosine), data_of<float>(rope.sine)};
}

}  // namespace temper::cuda
