#pragma once
// A product as its plain kernels see it.

#include "kernels/cuda/device/product.cuh"
#include "kernels/cuda/linear.h"

namespace temper::cuda {

template <class S>
product::Operand<S> left_operand(const Product& p) {
  const bool turned = p.kind == ProductKind::weight_gradient;
  return {static_cast<const S*>(p.x), turned ? 1 : p.left_pitch(), turned ? p.left_pitch() : 1};
}
template <class S>
product::Operand<S> right_operand(const Product& p) {
  const bool turned = p.kind != ProductKind::forward;
  return {static_cast<const S*>(p.w), turned ? 1 : p.K, turned ? p.N : 1};
}

template <class Y, class S>
product::Result<Y, S> result_of(const Product& p) {
  return {static_cast<Y*>(p.y), static_cast<const S*>(p.bias), p.pitch, p.add, p.scale};
}

}  // namespace temper::cuda
