#include "src/core/tensor.h"

#include <algorithm>

namespace temper {

std::string CTensor::shape_text() const {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(dim(i));
  return text + "]";
}

void check_shape(const char* name, const CTensor& t, std::initializer_list<int64_t> shape) {
  const bool same =
      t.rank == static_cast<int>(shape.size()) && std::equal(shape.begin(), shape.end(), t.dims.begin());
  CHECK(same, "tensor {} has shape {}, expected [{}]", name, t.shape_text(), fmt::join(shape, ", "));
}

}  // namespace temper
