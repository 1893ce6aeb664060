#include "src/ops/head.h"

namespace temper {

void logprob_forward(Ctx& c, Tensor logprob, Tensor entropy, Tensor lse, CTensor hidden, CTensor w,
                     CTensor targets, double temperature) {
  const int64_t n = hidden.dim(0), D = hidden.dim(1);
  CHECK_SHAPE(hidden, n, D);
  CHECK_SHAPE(w, w.dim(0), D);
  CHECK_SHAPE(targets, n);
  CHECK_SHAPE(logprob, n);
  CHECK_SHAPE(entropy, n);
  CHECK_SHAPE(lse, n);
  CHECK(w.dim(0) > 0 && D > 0 && temperature >= 0, "vocabulary {}, width {}, temperature {}", w.dim(0), D,
        temperature);
  DISPATCH(c, logprob_forward, logprob, entropy, lse, hidden, w, targets, temperature);
}

void logprob_backward(Ctx& c, Tensor dhidden, Tensor dw, CTensor dlogprob, CTensor dentropy, CTensor hidden,
                      CTensor w, CTensor targets, CTensor lse, CTensor entropy, double temperature) {
  const int64_t n = hidden.dim(0), D = hidden.dim(1);
  CHECK_SHAPE(hidden, n, D);
  CHECK_SHAPE(w, w.dim(0), D);
  CHECK_SHAPE(dhidden, n, D);
  CHECK_SHAPE(dw, w.dim(0), D);
  CHECK_SHAPE(targets, n);
  CHECK_SHAPE(dlogprob, n);
  CHECK_SHAPE(dentropy, n);
  CHECK_SHAPE(lse, n);
  CHECK_SHAPE(entropy, n);
  CHECK(D > 0 && temperature >= 0, "width {}, temperature {}", D, temperature);
  DISPATCH(c, logprob_backward, dhidden, dw, dlogprob, dentropy, hidden, w, targets, lse, entropy,
           temperature);
}

}  // namespace temper
