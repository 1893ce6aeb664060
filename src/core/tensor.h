#pragma once
// Non-owning views of dense row-major tensors. Tensor may be written, CTensor only read.
// Letters of the shape comments in all of temper: T tokens (packed rows), S sequences, D hidden, F ffn width,
// V vocabulary, Hq / Hkv query / key-value heads, dh head dimension, L layers, P pages per sequence.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "src/core/dtype.h"

namespace temper {

struct CTensor {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<int64_t, 4> dims{1, 1, 1, 1};

  int64_t dim(int i) const { return dims[static_cast<size_t>(i)]; }
  int64_t size() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t bytes() const { return size() * dtype_size(dtype); }
  bool empty() const { return data == nullptr; }
  template <class T>
  const T* as() const {
    CHECK(dtype == kDTypeOf<T>, "tensor holds {}, read as {}", dtype_name(dtype), dtype_name(kDTypeOf<T>));
    return static_cast<const T*>(data);
  }
  std::string shape_text() const;  // "[2, 3]"
};

struct Tensor : CTensor {
  template <class T>
  T* as() const {
    return const_cast<T*>(CTensor::as<T>());
  }
  void* raw() const { return const_cast<void*>(data); }
};

inline Tensor make_tensor(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  for (int64_t d : shape) t.dims[static_cast<size_t>(t.rank++)] = d;
  return t;
}

template <class T>
CTensor view_of(const T* data, std::initializer_list<int64_t> shape) {
  return make_tensor(const_cast<T*>(data), kDTypeOf<T>, shape);
}

/// Rows [begin, end) of the first dimension.
inline Tensor rows(const Tensor& t, int64_t begin, int64_t end) {
  CHECK(begin >= 0 && begin <= end && end <= t.dim(0), "rows {}..{} of {}", begin, end, t.shape_text());
  Tensor part = t;
  const int64_t row = t.dim(0) == 0 ? 0 : t.size() / t.dim(0);
  part.data = static_cast<char*>(t.raw()) + begin * row * dtype_size(t.dtype);
  part.dims[0] = end - begin;
  return part;
}
inline CTensor rows(const CTensor& t, int64_t begin, int64_t end) {
  Tensor mutable_view;
  static_cast<CTensor&>(mutable_view) = t;
  return rows(mutable_view, begin, end);
}

/// CHECK_SHAPE(x, T, D): the tensor has exactly these dimensions.
#define CHECK_SHAPE(tensor, ...) ::temper::check_shape(#tensor, tensor, {__VA_ARGS__})
void check_shape(const char* name, const CTensor& t, std::initializer_list<int64_t> shape);

}  // namespace temper
