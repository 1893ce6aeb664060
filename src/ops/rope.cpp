#include "src/ops/rope.h"

namespace temper {
namespace {

void check_rope(const CTensor& qkv, const CTensor& positions, const CTensor& cosine, const CTensor& sine,
                AttentionShape shape) {
  CHECK(shape.head_dim % 2 == 0, "head_dim {} is odd", shape.head_dim);
  CHECK_SHAPE(qkv, positions.dim(0), shape.qkv_width());
  CHECK_SHAPE(positions, qkv.dim(0));
  CHECK_SHAPE(cosine, cosine.dim(0), shape.head_dim / 2);
  CHECK_SHAPE(sine, cosine.dim(0), shape.head_dim / 2);
}

}  // namespace

void rope_forward(Ctx& c, Tensor qkv, CTensor positions, CTensor cosine, CTensor sine, AttentionShape shape) {
  check_rope(qkv, positions, cosine, sine, shape);
  DISPATCH(c, rope_forward, qkv, positions, cosine, sine, shape);
}

void rope_backward(Ctx& c, Tensor dqkv, CTensor positions, CTensor cosine, CTensor sine,
                   AttentionShape shape) {
  check_rope(dqkv, positions, cosine, sine, shape);
  DISPATCH(c, rope_backward, dqkv, positions, cosine, sine, shape);
}

}  // namespace temper
