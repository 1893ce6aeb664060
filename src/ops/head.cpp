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

void logprob_stats(Ctx& c, Tensor stats, Tensor target_logit, CTensor hidden, CTensor w, CTensor targets,
                   double temperature, VocabularyShare share) {
  const int64_t n = hidden.dim(0), D = hidden.dim(1);
  const DType wide = accumulate_dtype(hidden.dtype);
  CHECK_SHAPE(w, w.dim(0), D);
  CHECK_SHAPE(targets, n);
  CHECK_SHAPE(stats, num_chunks(w.dim(0)), n, 3);
  CHECK_SHAPE(target_logit, n);
  CHECK(stats.dtype == wide && target_logit.dtype == wide, "statistics in {}", dtype_name(stats.dtype));
  CHECK(share.first % kVocabularyChunk == 0 && share.ids > 0 && D > 0 && temperature >= 0,
        "a share from {} of {} ids, width {}, temperature {}", share.first, share.ids, D, temperature);
  DISPATCH(c, logprob_stats, stats, target_logit, hidden, w, targets, temperature, resolved(share, w));
}

void logprob_merge(Ctx& c, Tensor logprob, Tensor entropy, Tensor lse, CTensor stats, CTensor target_logit) {
  const int64_t n = logprob.dim(0);
  CHECK_SHAPE(stats, stats.dim(0), n, 3);
  CHECK_SHAPE(target_logit, n);
  CHECK_SHAPE(entropy, n);
  CHECK_SHAPE(lse, n);
  CHECK(stats.dim(0) > 0 && stats.dtype == lse.dtype, "statistics of {} chunks", stats.dim(0));
  DISPATCH(c, logprob_merge, logprob, entropy, lse, stats, target_logit);
}

void logprob_backward(Ctx& c, Tensor dhidden, Tensor dw, CTensor dlogprob, CTensor dentropy, CTensor hidden,
                      CTensor w, CTensor targets, CTensor lse, CTensor entropy, double temperature,
                      VocabularyShare share) {
  const int64_t n = hidden.dim(0), D = hidden.dim(1);
  CHECK_SHAPE(hidden, n, D);
  CHECK_SHAPE(w, w.dim(0), D);
  CHECK_SHAPE(dhidden, n, D);
  if (!dw.empty()) CHECK_SHAPE(dw, w.dim(0), D);
  CHECK_SHAPE(targets, n);
  CHECK_SHAPE(dlogprob, n);
  CHECK_SHAPE(dentropy, n);
  CHECK_SHAPE(lse, n);
  CHECK_SHAPE(entropy, n);
  CHECK(D > 0 && temperature >= 0, "width {}, temperature {}", D, temperature);
  CHECK(dhidden.dtype == hidden.dtype || dhidden.dtype == accumulate_dtype(hidden.dtype), "dhidden is {}",
        dtype_name(dhidden.dtype));
  DISPATCH(c, logprob_backward, dhidden, dw, dlogprob, dentropy, hidden, w, targets, lse, entropy,
           temperature, resolved(share, w));
}

}  // namespace temper
