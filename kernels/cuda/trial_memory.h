#pragma once
// Memory of a self-test, on a lane: what it gives kernels to work on, and what they made of it, on the host.

#include <vector>

#include "kernels/cuda/linear.h"

namespace temper::cuda {

class TrialMemory {
 public:
  using Bytes = std::vector<char>;

  explicit TrialMemory(Lane& lane) : lane_(lane) {}
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;

  Ctx& ctx() { return ctx_; }
  Arena& arena() { return memory_; }

  /// Roughly normal numbers of unit variance.
  Tensor random(std::initializer_list<int64_t> sizes) {
    const Tensor t = memory_.make(sizes, DType::bf16);
    fill_random(lane_, t.raw(), t.size());
    return t;
  }
  Tensor nan(std::initializer_list<int64_t> sizes, DType type) {
    const Tensor t = memory_.make(sizes, type);
    device::fill(lane_, t.raw(), 0xff, t.bytes());
    return t;
  }
  Tensor copy_of(const CTensor& host) {
    const Tensor copy = memory_.like(host);
    device::copy_to_device(lane_, copy.raw(), host.data, host.bytes());
    return copy;
  }
  /// of(0), of(1), ..
  template <class Number>
  Tensor numbers(int64_t count, const Number& of) {
    std::vector<int32_t> list;
    for (int64_t n = 0; n < count; ++n) list.push_back(static_cast<int32_t>(of(n)));
    return copy_of(view_of(list.data(), {count}));
  }
  /// Rows [begin, end) of every sequence of `length` rows, one sequence after the other.
  Tensor rows_of_each(const Tensor& all, int64_t length, int64_t begin, int64_t end) {
    const int64_t sequences = all.dim(0) / length, count = end - begin;
    const Tensor some = memory_.make({sequences * count, all.dim(1)}, all.dtype);
    for (int64_t n = 0; n < sequences; ++n) {
      const Tensor to = rows(some, n * count, (n + 1) * count);
      device::copy(lane_, to.raw(), rows(all, n * length + begin, n * length + end).raw(), to.bytes());
    }
    return some;
  }
  /// Waits for them.
  Bytes bytes_of(const Tensor& t) {
    Bytes bytes(static_cast<size_t>(t.bytes()));
    device::copy_from_device(lane_, bytes.data(), t.raw(), t.bytes());
    return bytes;
  }

 private:
  Lane& lane_;
  Arena memory_{Device::cuda};
  Ctx ctx_{.scratch = memory_, .lane = lane_};
};

}  // namespace temper::cuda
