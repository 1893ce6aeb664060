#include "src/ops/optimizer.h"

namespace temper {

void adamw_step(Ctx& c, Tensor weight, Tensor master, Tensor m, Tensor v, CTensor grad,
                std::span<const FlatRange> decays, AdamwStep step) {
  CHECK(step.count >= 1, "update number {}", step.count);
  CHECK_SHAPE(master, weight.dim(0));
  CHECK_SHAPE(m, weight.dim(0));
  CHECK_SHAPE(v, weight.dim(0));
  CHECK_SHAPE(grad, weight.dim(0));
  const DType wide = accumulate_dtype(weight.dtype);
  CHECK(master.dtype == wide || (master.dtype == DType::u16 && weight.dtype == DType::bf16),
        "{} masters of {} weights", dtype_name(master.dtype), dtype_name(weight.dtype));
  CHECK(m.dtype == v.dtype && (m.dtype == wide || (m.dtype == DType::bf16 && wide == DType::f32)),
        "{} and {} moments of {} weights", dtype_name(m.dtype), dtype_name(v.dtype),
        dtype_name(weight.dtype));
  CHECK(m.dtype == wide || (step.first_element >= 0 && step.first_element % kMomentGroup == 0),
        "bf16 moments from element {} on", step.first_element);
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
