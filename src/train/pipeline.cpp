#include "src/train/pipeline.h"

#include <cstring>

#include "src/ops/elementwise.h"

namespace temper {

void Pipeline::exchange(Ctx& c, const Parcel& out, const Parcel& in) const {
  if (out.tensor.empty() && in.tensor.empty()) return;
  tensors_->send_recv(c, out.tensor, out.stage, in.tensor, in.stage, "streams and gradients between stages");
}

void Pipeline::copy_from_last(std::vector<double>& values, const char* what) const {
  const size_t bytes = values.size() * sizeof(double);
  const std::string all = from_last({reinterpret_cast<const char*>(values.data()), bytes}, what);
  std::memcpy(values.data(), all.data(), bytes);
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
