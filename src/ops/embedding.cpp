#include "src/ops/embedding.h"

namespace temper {

void embedding_forward(Ctx& c, Tensor y, CTensor tokens, CTensor w, VocabularyShare share) {
  CHECK_SHAPE(tokens, y.dim(0));
  CHECK_SHAPE(y, tokens.dim(0), w.dim(1));
  CHECK_SHAPE(w, w.dim(0), y.dim(1));
  CHECK(y.dtype == w.dtype, "y is {}, w is {}", dtype_name(y.dtype), dtype_name(w.dtype));
  DISPATCH(c, embedding_forward, y, tokens, w, resolved(share, w));
}

void embedding_backward(Ctx& c, Tensor dw, CTensor dy, CTensor tokens, int64_t skip_id,
                        VocabularyShare share) {
  CHECK_SHAPE(tokens, dy.dim(0));
  CHECK_SHAPE(dy, tokens.dim(0), dw.dim(1));
  CHECK_SHAPE(dw, dw.dim(0), dy.dim(1));
  DISPATCH(c, embedding_backward, dw, dy, tokens, skip_id, resolved(share, dw));
}

}  // namespace temper
