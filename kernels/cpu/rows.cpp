#include "kernels/cpu/cpu.h"

namespace temper::cpu {

void gather_rows(Ctx&, Tensor y, CTensor x, CTensor index) {
  const int64_t bytes = x.dim(1) * dtype_size(x.dtype);
  const int32_t* at = index.as<int32_t>();
  for (int64_t i = 0; i < index.dim(0); ++i) {
    CHECK(at[i] >= 0 && at[i] < x.dim(0), "row {} of {}", at[i], x.dim(0));
    std::memcpy(static_cast<char*>(y.raw()) + i * bytes, static_cast<const char*>(x.data) + at[i] * bytes,
                static_cast<size_t>(bytes));
  }
}

void scatter_rows(Ctx&, Tensor y, CTensor x, CTensor index) {
  const int64_t bytes = y.dim(1) * dtype_size(y.dtype);
  const int32_t* at = index.as<int32_t>();
  std::memset(y.raw(), 0, static_cast<size_t>(y.bytes()));
  for (int64_t i = 0; i < index.dim(0); ++i) {
    CHECK(at[i] >= 0 && at[i] < y.dim(0), "row {} of {}", at[i], y.dim(0));
    std::memcpy(static_cast<char*>(y.raw()) + at[i] * bytes, static_cast<const char*>(x.data) + i * bytes,
                static_cast<size_t>(bytes));
  }
}

}  // namespace temper::cpu
