#include "src/core/arena.h"

#include <algorithm>

namespace temper {
void* Arena::allocate(int64_t bytes) {
  CHECK(bytes >= 0, "allocation of {} bytes", bytes);
  const int64_t alignment = like_gpu(device()) ? 256 : 64;
  const int64_t begin = used_,
                end = begin + (std::max<int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  region_.grow_to(end);
  peak_ = std::max(peak_, end);
  used_ = end;
  return region_.base() + begin;
}

Tensor Arena::make(std::initializer_list<int64_t> shape, DType dtype) {
  Tensor t = make_tensor(nullptr, dtype, shape);
  t.data = allocate(t.bytes());
  return t;
}

Tensor Arena::zeros(std::initializer_list<int64_t> shape, DType dtype) {
  Tensor t = make(shape, dtype);
  device::clear(device(), t.raw(), t.bytes());
  return t;
}

void Arena::trim(Lane& lane) {
  lane.wait();
  region_.shrink_to(used_);
}

void Arena::suspend(Lane& lane) {
  if (!like_gpu(device()) || held_bytes() == 0) return;
  lane.wait();
  suspended_ = held_bytes();
  region_.shrink_to(0);
}

Tensor Arena::like(const CTensor& t) {
  Tensor copy;
  static_cast<CTensor&>(copy) = t;
  copy.data = allocate(t.bytes());
  return copy;
}

}  // namespace temper
