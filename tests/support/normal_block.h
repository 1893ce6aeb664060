#pragma once
// Normal numbers for large tensors of either device.

#include "src/core/device.h"
#include "tests/support/random.h"

namespace temper {

/// Fills memory with a repeated block of normal numbers, beginning at a place of its own for each
/// `seed`.
class NormalBlock {
 public:
  NormalBlock() : numbers_(normal_values(kSize, 77)) {}
  void fill(Device device, const Tensor& t, double scale, double mean, int64_t seed) const {
    dispatch_storage(t.dtype, [&](auto s) {
      using S = decltype(s);
      std::vector<S> block;
      for (double x : numbers_) block.push_back(S(static_cast<float>(mean + scale * x)));
      for (int64_t first = 0, at = 7919 * seed % kSize; first < t.size();) {
        const int64_t n = std::min(kSize - at, t.size() - first);
        device::upload(device, t.as<S>() + first, block.data() + at, n * int64_t{sizeof(S)});
        first += n;
        at = 0;
      }
    });
  }

 private:
  static constexpr int64_t kSize = (1 << 20) + 7;
  std::vector<double> numbers_;
};

}  // namespace temper
