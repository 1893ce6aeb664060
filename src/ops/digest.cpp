#include "src/ops/digest.h"

#include "kernels/digest.h"

namespace temper {

void add_digest(Ctx& c, Tensor sum, CTensor x, int64_t first) {
  CHECK_SHAPE(sum, 2);
  CHECK(sum.dtype == DType::i32 && first >= 0, "digest from word {} on in {}", first, dtype_name(sum.dtype));
  if (x.size() == 0) return;
  DISPATCH(c, add_digest, sum, x, first);
}

int64_t digest_words(int64_t bytes) { return (bytes + kDigestWord - 1) / kDigestWord; }

}  // namespace temper
