#include "src/ops/optimizer.h"

namespace temper {

void adamw_step(Ctx& c, Tensor weight, Tensor master, Tensor m, Tensor v, CTensor grad,
                std::span<const FlatRange> decays, AdamwStep step) {
  CHECK(step.count >= 1, "update number {}", step.count);
  CHECK_SHAPE(master, weight.dim(0));
  CHECK_SHAPE(m, weight.dim(0));
  CHECK_SHAPE(v, weight.dim(0));
  CHECK_SHAPE(grad, weight.dim(0));
  int64_t end = 0;
  for (const FlatRange& range : decays) {
    CHECK(range.begin >= end && range.end >= range.begin, "elements {} to {} decay after those up to {}",
          range.begin, range.end, end);
    end = range.end;
  }
  CHECK(end <= weight.dim(0), "elements up to {} of {} decay", end, weight.dim(0));
  DISPATCH(c, adamw_step, weight, master, m, v, grad, decays, step);
}

void round_master(Ctx& c, Tensor weight, CTensor master) {
  CHECK_SHAPE(master, weight.dim(0));
  DISPATCH(c, round_master, weight, master);
}

void sum_of_squares(Ctx& c, Tensor sum, CTensor x) {
  CHECK_SHAPE(sum, 1);
  DISPATCH(c, sum_of_squares, sum, x);
}

}  // namespace temper
