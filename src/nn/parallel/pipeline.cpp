#include "src/nn/parallel/pipeline.h"

#include <cstring>

#include "src/ops/elementwise.h"

namespace temper {

void Pipeline::exchange(Ctx& c, std::span<const Parcel> out, std::span<const Parcel> in,
                        const char* what) const {
  if (!out.empty() || !in.empty()) tensors_->exchange(c, out, in, what);
}

void Pipeline::copy_from_last(std::vector<double>& values, const char* what) const {
  const size_t bytes = values.size() * sizeof(double);
  const std::string all = from_last({reinterpret_cast<const char*>(values.data()), bytes}, what);
  std::memcpy(values.data(), all.data(), bytes);
}

Tensor Pipeline::receive(Ctx& c, int64_t tokens, int64_t width, DType dtype) const {
  if (first()) return {};
  const Tensor x = c.scratch.make({tokens, width}, dtype);
  exchange(c, {}, parcel(stage() - 1, x));
  return x;
}

void Pipeline::sum_ends(Ctx& c, const Tensor& mine, const char* what) const {
  if (!first() && !last()) return;
  ArenaScope scope(c.scratch);
  const Tensor both = c.scratch.make({2, mine.size()}, mine.dtype);
  const int other = first() ? stages() - 1 : 0;
  const auto half = [&](int i) { return make_tensor(rows(both, i, i + 1).raw(), mine.dtype, {mine.size()}); };
  device::copy(c.lane, half(first() ? 0 : 1).raw(), mine.data, mine.bytes());
  tensors_->send_recv(c, mine, other, half(first() ? 1 : 0), other, what);
  sum_in_order(c, mine, both);
}

}  // namespace temper
