#pragma once
// Shapes whose fast kernels are compared with others of their class of bits, each the first time that it
// comes up: another chip may sum in another order. A shape whose bits differ does without them, which costs
// time alone, and a warning says so.

#include <map>

#include "src/core/log.h"

namespace temper::cuda {

template <class Shape>
class TestedShapes {
 public:
  /// Whether the fast kernels may be used. Asked for the first time, `has_same_bits()` compares them;
  /// `name()` says what they are.
  template <class Name, class Test>
  bool may_use(const Shape& shape, const Name& name, const Test& has_same_bits) {
    const auto known = results_.find(shape);
    if (known != results_.end()) return known->second;
    const bool same = has_same_bits();
    results_.emplace(shape, same);
    if (!same)
      log::warn(
          "{} are not used: on random rows their bits differ from those of the kernels that define them"
          ", which are slower; a GPU (H100, H200) that they were written for has the same ones",
          name());
    return same;
  }

 private:
  std::map<Shape, bool> results_;
};

}  // namespace temper::cuda
