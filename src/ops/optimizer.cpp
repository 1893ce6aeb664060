#include "src/ops/optimizer.h"

namespace temper {

void adamw_step(Ctx& c, Tensor weight, Tensor master, Tensor m, Tensor v, CTensor grad, AdamwStep step) {
  CHECK(step.count >= 1, "update number {}", step.count);
  CHECK_SHAPE(master, weight.dim(0));
  CHECK_SHAPE(m, weight.dim(0));
  CHECK_SHAPE(v, weight.dim(0));
  CHECK_SHAPE(grad, weight.dim(0));
  DISPATCH_CPU(c, adamw_step, weight, master, m, v, grad, step);
}

void round_master(Ctx& c, Tensor weight, CTensor master) {
  CHECK_SHAPE(master, weight.dim(0));
  DISPATCH_CPU(c, round_master, weight, master);
}

void sum_of_squares(Ctx& c, double* result, CTensor x) { DISPATCH_CPU(c, sum_of_squares, result, x); }

}  // namespace temper
