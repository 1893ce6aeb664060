#include "src/nn/parallel/pipeline.h"

#include "src/ops/elementwise.h"

namespace temper {

void Pipeline::exchange(Ctx& c, std::span<const Parcel> out, const Parcel& in) const {
  if (out.empty() && in.tensor.empty()) return;
  std::vector<temper::Parcel> sent, got;
  for (const Parcel& p : out) sent.push_back({p.stage, p.tensor.raw(), p.tensor.bytes()});
  if (!in.tensor.empty()) got.push_back({in.stage, in.tensor.raw(), in.tensor.bytes()});
  tensors_->exchange(c, sent, got, "streams and gradients between stages");
}

Tensor Pipeline::receive(Ctx& c, int64_t tokens, int64_t width, DType dtype) const {
  if (first()) return {};
  const Tensor x = c.scratch.make({tokens, width}, dtype);
  exchange(c, {}, {x, stage() - 1});
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
