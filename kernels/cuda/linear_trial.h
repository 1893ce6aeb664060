#pragma once
// Self-tests of products: another chip or another library may sum in another order, so a kernel is compared
// bit by bit with the plain chain before it is used.

#include <functional>

#include "kernels/cuda/linear.h"

namespace temper::cuda {

/// A product of the shape of `p` on random activations (of a weight gradient: both operands), in memory of
/// its own: arenas of the caller keep what they are planned for.
class Trial {
 public:
  Trial(Lane& lane, const Product& p);

  using Run = std::function<void(const Product&)>;
  /// `run` on all rows against `reference` on the first 64, the last 64 and 64 in the middle: true if all
  /// bits of the first `columns` columns agree. Before, y holds random numbers if the product adds, else NaN.
  bool same_bits(int64_t columns, const Run& run, const Run& reference);
  /// The same with all columns and the plain chain.
  bool same_bits_as_chain(const Run& run);

  /// Runs on it cost what runs on real data cost.
  const Product& product() const { return p_; }

 private:
  void fill_output();

  Lane& lane_;
  Arena memory_{Device::cuda};
  Product p_;
};

/// Exit::environment: `kernel` is of another class of bits.
[[noreturn]] void fail_class(const char* kernel, const Product& p);

}  // namespace temper::cuda
