#pragma once
// Rotary positions, in place on the q and k parts of a qkv row; v is not touched. Pairs are (i, i + dh/2).
// The tables come from nn/rope_table.h and hold the attention factor of the model.

#include "src/ops/dispatch.h"

namespace temper {

/// c = cosine[positions[t], i], s = sine[..]:
///   y[i] = round(x[i] c - x[i+dh/2] s),   y[i+dh/2] = round(x[i+dh/2] c + x[i] s)      each product rounded,
///   no fma
/// qkv: [T, (Hq+2Hkv)dh]   positions: [T] i32   cosine, sine: [max_positions, dh/2] in the accumulate dtype
void rope_forward(Ctx& c, Tensor qkv, CTensor positions, CTensor cosine, CTensor sine, AttentionShape shape);

/// dx[i] = round(dy[i] c + dy[i+dh/2] s),   dx[i+dh/2] = round(dy[i+dh/2] c - dy[i] s)
/// dqkv: [T, (Hq+2Hkv)dh], dy before, dx after
void rope_backward(Ctx& c, Tensor dqkv, CTensor positions, CTensor cosine, CTensor sine,
                   AttentionShape shape);

}  // namespace temper
