#include "src/ops/elementwise.h"

namespace temper {

void add(Ctx& c, Tensor y, CTensor a, CTensor b) {
  CHECK(y.dims == a.dims && y.dims == b.dims, "shapes {}, {} and {}", y.shape_text(), a.shape_text(),
        b.shape_text());
  DISPATCH(c, add, y, a, b);
}

}  // namespace temper
