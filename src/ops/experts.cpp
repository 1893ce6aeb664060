#include "src/ops/experts.h"

namespace temper {
namespace {

void check_choices(const CTensor& ids, const CTensor& weights, const CTensor& logits, int64_t num_experts) {
  CHECK_SHAPE(ids, logits.dim(0), ids.dim(1));
  CHECK_SHAPE(weights, logits.dim(0), ids.dim(1));
  CHECK(num_experts <= logits.dim(1) && ids.dim(1) >= 1 && ids.dim(1) <= num_experts,
        "{} of {} experts by logits {}", ids.dim(1), num_experts, logits.shape_text());
}

int64_t num_groups(const CTensor& offsets) { return offsets.dim(0) - 1; }

void check_places(const CTensor& rows, const CTensor& places) {
  CHECK(rows.dim(0) == places.size(), "{} rows of experts, {} places", rows.dim(0), places.size());
}

}  // namespace

void choose_experts(Ctx& c, Tensor ids, Tensor weights, CTensor logits, int64_t num_experts, bool normalize) {
  check_choices(ids, weights, logits, num_experts);
  DISPATCH(c, choose_experts, ids, weights, logits, num_experts, normalize);
}

void choose_experts_backward(Ctx& c, Tensor dlogits, CTensor dweights, CTensor ids, CTensor weights,
                             CTensor logits, int64_t num_experts, bool normalize) {
  check_choices(ids, weights, logits, num_experts);
  CHECK_SHAPE(dweights, ids.dim(0), ids.dim(1));
  CHECK_SHAPE(dlogits, logits.dim(0), logits.dim(1));
  DISPATCH(c, choose_experts_backward, dlogits, dweights, ids, weights, logits, num_experts, normalize);
}

void sort_by_expert(Ctx& c, Tensor offsets, Tensor tokens, Tensor places, CTensor ids) {
  CHECK_SHAPE(offsets, offsets.dim(0));
  CHECK_SHAPE(tokens, ids.size());
  CHECK_SHAPE(places, ids.dim(0), ids.dim(1));
  DISPATCH(c, sort_by_expert, offsets, tokens, places, ids);
}

void add_router_sums(Ctx& c, Tensor sums, CTensor logits, CTensor offsets) {
  CHECK_SHAPE(sums, offsets.dim(0));
  CHECK(logits.dtype == sums.dtype && num_groups(offsets) <= logits.dim(1), "{} experts by logits {}",
        num_groups(offsets), logits.shape_text());
  DISPATCH(c, add_router_sums, sums, logits, offsets);
}

void add_router_counts(Ctx& c, Tensor counts, CTensor ids, CTensor begins) {
  CHECK_SHAPE(counts, begins.dim(0) - 1, counts.dim(1));
  CHECK_SHAPE(ids, ids.dim(0), ids.dim(1));
  DISPATCH(c, add_router_counts, counts, ids, begins);
}

void count_other_routes(Ctx& c, Tensor count, CTensor ids, CTensor given) {
  CHECK_SHAPE(count, 1);
  CHECK_SHAPE(given, ids.dim(0), ids.dim(1));
  DISPATCH(c, count_other_routes, count, ids, given);
}

void follow_routes(Ctx& c, Tensor ids, Tensor weights, CTensor given, CTensor logits, int64_t num_experts,
                   bool normalize) {
  check_choices(ids, weights, logits, num_experts);
  CHECK_SHAPE(given, ids.dim(0), ids.dim(1));
  DISPATCH(c, follow_routes, ids, weights, given, logits, num_experts, normalize);
}

void router_losses_backward(Ctx& c, Tensor dlogits, Tensor losses, CTensor logits, CTensor slopes,
                            CTensor begins, double z) {
  CHECK_SHAPE(dlogits, logits.dim(0), logits.dim(1));
  CHECK_SHAPE(losses, 2);
  CHECK_SHAPE(slopes, begins.dim(0) - 1, slopes.dim(1));
  CHECK(slopes.dim(1) <= logits.dim(1) && slopes.dtype == logits.dtype && losses.dtype == logits.dtype,
        "slopes {} of {} for logits {} of {}", slopes.shape_text(), dtype_name(slopes.dtype),
        logits.shape_text(), dtype_name(logits.dtype));
  DISPATCH(c, router_losses_backward, dlogits, losses, logits, slopes, begins, z);
}

void expert_linear_forward(Ctx& c, Tensor y, CTensor x, CTensor w, CTensor offsets) {
  CHECK_SHAPE(x, y.dim(0), w.dim(1));
  CHECK_SHAPE(w, num_groups(offsets) * y.dim(1), x.dim(1));
  CHECK(x.dim(1) > 0, "a sum over no features");
  CHECK(y.dtype == x.dtype, "y is {}, x is {}", dtype_name(y.dtype), dtype_name(x.dtype));
  DISPATCH(c, expert_linear_forward, y, x, w, offsets);
}

void expert_linear_backward_input(Ctx& c, Tensor dx, CTensor dy, CTensor w, CTensor offsets) {
  CHECK_SHAPE(dx, dy.dim(0), w.dim(1));
  CHECK_SHAPE(w, num_groups(offsets) * dy.dim(1), dx.dim(1));
  CHECK(dx.dtype == dy.dtype, "dx is {}, dy is {}", dtype_name(dx.dtype), dtype_name(dy.dtype));
  DISPATCH(c, expert_linear_backward_input, dx, dy, w, offsets);
}

void expert_linear_backward_weight(Ctx& c, Tensor dw, CTensor dy, CTensor x, CTensor offsets,
                                   GradWrite write) {
  CHECK_SHAPE(dw, num_groups(offsets) * dy.dim(1), x.dim(1));
  CHECK_SHAPE(dy, x.dim(0), dy.dim(1));
  DISPATCH(c, expert_linear_backward_weight, dw, dy, x, offsets, write);
}

void combine_experts(Ctx& c, Tensor y, CTensor x, CTensor places, CTensor weights, CTensor shared,
                     CTensor logits) {
  CHECK_SHAPE(y, places.dim(0), x.dim(1));
  check_places(x, places);
  CHECK_SHAPE(weights, places.dim(0), places.dim(1));
  if (!shared.empty()) {
    CHECK_SHAPE(shared, y.dim(0), y.dim(1));
    CHECK_SHAPE(logits, y.dim(0), logits.dim(1));
  }
  DISPATCH(c, combine_experts, y, x, places, weights, shared, logits);
}

void weigh_expert_rows_backward(Ctx& c, Tensor da, Tensor wa, Tensor dweights, CTensor dweighted, CTensor a,
                                CTensor places, CTensor weights) {
  check_places(a, places);
  CHECK_SHAPE(dweighted, a.dim(0), a.dim(1));
  CHECK_SHAPE(da, a.dim(0), a.dim(1));
  CHECK_SHAPE(wa, a.dim(0), a.dim(1));
  CHECK_SHAPE(weights, places.dim(0), places.dim(1));
  CHECK_SHAPE(dweights, places.dim(0), places.dim(1));
  DISPATCH(c, weigh_expert_rows_backward, da, wa, dweights, dweighted, a, places, weights);
}

void shared_expert_backward(Ctx& c, Tensor dshared, Tensor dlogits, CTensor dy, CTensor shared,
                            CTensor logits) {
  CHECK_SHAPE(dshared, dy.dim(0), dy.dim(1));
  CHECK_SHAPE(shared, dy.dim(0), dy.dim(1));
  CHECK_SHAPE(logits, dy.dim(0), logits.dim(1));
  CHECK_SHAPE(dlogits, logits.dim(0), logits.dim(1));
  DISPATCH(c, shared_expert_backward, dshared, dlogits, dy, shared, logits);
}

void sum_expert_rows(Ctx& c, Tensor dx, CTensor rows, CTensor places, CTensor router, CTensor shared) {
  CHECK_SHAPE(dx, places.dim(0), rows.dim(1));
  check_places(rows, places);
  CHECK_SHAPE(router, dx.dim(0), dx.dim(1));
  if (!shared.empty()) CHECK_SHAPE(shared, dx.dim(0), dx.dim(1));
  DISPATCH(c, sum_expert_rows, dx, rows, places, router, shared);
}

}  // namespace temper
