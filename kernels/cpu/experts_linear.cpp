// Grouped products: those of a linear layer (kernels/cpu/linear.cpp) on the rows of one expert after the
// other.

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_loops.h"

namespace temper::cpu {
namespace {

/// body(expert, begin, end) for each expert with rows. Where memory is counted alone, one has them all.
template <class Body>
void for_each_expert(Ctx& ctx, const CTensor& offsets, int64_t rows, Body&& body) {
  if (ctx.threads.count_only) return body(int64_t{0}, int64_t{0}, rows);
  const int32_t* const begin = offsets.as<int32_t>();
  const int64_t num_experts = offsets.dim(0) - 1;
  CHECK(begin[num_experts] <= rows, "{} rows of experts, the tensor has {}", begin[num_experts], rows);
  for (int64_t e = 0; e < num_experts; ++e)
    if (begin[e] < begin[e + 1]) body(e, int64_t{begin[e]}, int64_t{begin[e + 1]});
}

}  // namespace

void expert_linear_forward(Ctx& ctx, Tensor y, CTensor x, CTensor w, CTensor offsets) {
  const int64_t outputs = y.dim(1);
  for_each_expert(ctx, offsets, x.dim(0), [&](int64_t expert, int64_t begin, int64_t end) {
    linear_forward(ctx, rows(y, begin, end), rows(x, begin, end),
                   rows(w, expert * outputs, (expert + 1) * outputs), {});
  });
}

void expert_linear_backward_input(Ctx& ctx, Tensor dx, CTensor dy, CTensor w, CTensor offsets) {
  const int64_t outputs = dy.dim(1);
  for_each_expert(ctx, offsets, dy.dim(0), [&](int64_t expert, int64_t begin, int64_t end) {
    linear_backward_input(ctx, rows(dx, begin, end), rows(dy, begin, end),
                          rows(w, expert * outputs, (expert + 1) * outputs));
  });
}

void expert_linear_backward_weight(Ctx& ctx, Tensor dw, CTensor dy, CTensor x, CTensor offsets,
                                   GradWrite write) {
  const int64_t outputs = dy.dim(1), num_experts = offsets.dim(0) - 1;
  if (write == GradWrite::first)
    parallel_ranges(ctx.threads, num_experts, 1, [&](int64_t expert, int64_t) {
      const int32_t* const begin = offsets.as<int32_t>();
      const Tensor block = rows(dw, expert * outputs, (expert + 1) * outputs);
      if (begin[expert] == begin[expert + 1]) std::memset(block.raw(), 0, static_cast<size_t>(block.bytes()));
    });
  for_each_expert(ctx, offsets, x.dim(0), [&](int64_t expert, int64_t begin, int64_t end) {
    linear_backward_weight(ctx, rows(dw, expert * outputs, (expert + 1) * outputs), rows(dy, begin, end),
                           rows(x, begin, end), write);
  });
}

}  // namespace temper::cpu
