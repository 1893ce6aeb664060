#include "src/ops/adapters/adapter.h"

namespace temper {
namespace {

/// `whole` [N, n r] and `own` [M, r] have the rows and columns of all blocks.
void check_blocks(const CTensor& whole, const CTensor& own, const AdapterBlocks& blocks) {
  CHECK(blocks.count >= 1 && blocks.count <= AdapterBlocks::kMost, "{} blocks of adapters", blocks.count);
  CHECK(whole.rank == 2 && own.rank == 2 && whole.dim(1) == blocks.count * own.dim(1),
        "{} blocks of {} columns in {}", blocks.count, own.shape_text(), whole.shape_text());
  for (int i = 0; i < blocks.count; ++i)
    CHECK(blocks.to[i] >= 0 && blocks.from[i] >= 0 && blocks.rows[i] >= 0 &&
              blocks.to[i] + blocks.rows[i] <= whole.dim(0) && blocks.from[i] + blocks.rows[i] <= own.dim(0),
          "block {}: {} rows from {} on, of {}, to {}, of {}", i, blocks.rows[i], blocks.from[i], own.dim(0),
          blocks.to[i], whole.dim(0));
}

/// `y` is the sum of a product of `x`.
void check_sum(const CTensor& y, const CTensor& x) {
  CHECK(y.dtype == x.dtype || y.dtype == accumulate_dtype(x.dtype), "{} for {}", dtype_name(y.dtype),
        dtype_name(x.dtype));
}

/// What is added to y.
void check_low(const CTensor& y, const LowProduct& low) {
  CHECK_SHAPE(low.u, y.dim(0), low.blocks.count * low.b.dim(1));
  check_blocks(make_tensor(nullptr, low.b.dtype, {y.dim(1), low.u.dim(1)}), low.b, low.blocks);
  CHECK(low.u.dtype == low.b.dtype, "{} and {}", dtype_name(low.u.dtype), dtype_name(low.b.dtype));
}

/// SwiGLU of gate_up with what is added to it.
void check_swiglu(const CTensor& a, const CTensor& gate_up, const LowProduct& low) {
  CHECK_SHAPE(a, gate_up.dim(0), a.dim(1));
  CHECK_SHAPE(gate_up, a.dim(0), 2 * a.dim(1));
  check_low(gate_up, low);
  CHECK(a.dtype == gate_up.dtype && a.dtype == low.u.dtype, "{}, {} and {}", dtype_name(a.dtype),
        dtype_name(gate_up.dtype), dtype_name(low.u.dtype));
}

}  // namespace

void linear_pair_forward(Ctx& c, Tensor y, Tensor u, CTensor x, CTensor w, CTensor bias, CTensor a) {
  CHECK_SHAPE(x, y.dim(0), w.dim(1));
  CHECK_SHAPE(w, y.dim(1), x.dim(1));
  CHECK_SHAPE(y, x.dim(0), w.dim(0));
  if (!bias.empty()) CHECK_SHAPE(bias, w.dim(0));
  CHECK_SHAPE(a, u.dim(1), x.dim(1));
  CHECK_SHAPE(u, x.dim(0), a.dim(0));
  CHECK(y.dtype == x.dtype && u.dtype == x.dtype, "{} and {} of {}", dtype_name(y.dtype), dtype_name(u.dtype),
        dtype_name(x.dtype));
  DISPATCH(c, linear_pair_forward, y, u, x, w, bias, a);
}

void adapter_forward(Ctx& c, Tensor y, const LowProduct& low) {
  check_low(y, low);
  check_sum(y, low.u);
  DISPATCH(c, adapter_forward, y, low);
}

void adapter_swiglu_forward(Ctx& c, Tensor a, CTensor gate_up, const LowProduct& low) {
  check_swiglu(a, gate_up, low);
  DISPATCH(c, adapter_swiglu_forward, a, gate_up, low);
}

void adapter_swiglu_forward_kept(Ctx& c, Tensor a, Tensor gate_up, const LowProduct& low) {
  check_swiglu(a, gate_up, low);
  DISPATCH(c, adapter_swiglu_forward_kept, a, gate_up, low);
}

void adapter_backward_low(Ctx& c, Tensor du, CTensor dy, CTensor v, double scale) {
  CHECK_SHAPE(du, dy.dim(0), v.dim(1));
  CHECK_SHAPE(v, dy.dim(1), du.dim(1));
  CHECK(du.dtype == dy.dtype && v.dtype == dy.dtype, "{} and {} of {}", dtype_name(du.dtype),
        dtype_name(v.dtype), dtype_name(dy.dtype));
  DISPATCH(c, adapter_backward_low, du, dy, v, scale);
}

void adapter_backward_input(Ctx& c, Tensor dx, CTensor du, CTensor a) {
  CHECK_SHAPE(dx, du.dim(0), a.dim(1));
  CHECK_SHAPE(a, du.dim(1), dx.dim(1));
  CHECK_SHAPE(du, dx.dim(0), a.dim(0));
  CHECK(du.dtype == a.dtype, "{} and {}", dtype_name(du.dtype), dtype_name(a.dtype));
  check_sum(dx, du);
  DISPATCH(c, adapter_backward_input, dx, du, a);
}

void adapter_swiglu_backward(Ctx& c, Tensor dgate_up, Tensor da, CTensor du, CTensor a, CTensor gate_up) {
  CHECK_SHAPE(da, du.dim(0), a.dim(1));
  CHECK_SHAPE(a, du.dim(1), da.dim(1));
  CHECK_SHAPE(gate_up, da.dim(0), 2 * da.dim(1));
  CHECK_SHAPE(dgate_up, da.dim(0), 2 * da.dim(1));
  for (const CTensor& t : {CTensor(dgate_up), CTensor(da), a, gate_up})
    CHECK(t.dtype == du.dtype, "{} and {}", dtype_name(t.dtype), dtype_name(du.dtype));
  DISPATCH(c, adapter_swiglu_backward, dgate_up, da, du, a, gate_up);
}

void adapter_weights(Ctx& c, Tensor w, CTensor b, const AdapterBlocks& blocks) {
  check_blocks(w, b, blocks);
  CHECK(w.dtype == b.dtype, "{} and {}", dtype_name(w.dtype), dtype_name(b.dtype));
  DISPATCH(c, adapter_weights, w, b, blocks);
}

void adapter_backward_a(Ctx& c, Tensor da, CTensor du, CTensor x, GradWrite write) {
  CHECK_SHAPE(da, du.dim(1), x.dim(1));
  CHECK_SHAPE(du, x.dim(0), da.dim(0));
  CHECK_SHAPE(x, du.dim(0), da.dim(1));
  CHECK(du.dtype == x.dtype && da.dtype == accumulate_dtype(x.dtype), "{} and {} for a gradient in {}",
        dtype_name(du.dtype), dtype_name(x.dtype), dtype_name(da.dtype));
  DISPATCH(c, adapter_backward_a, da, du, x, write);
}

void adapter_backward_b(Ctx& c, Tensor db, CTensor dy, CTensor u, double scale, const AdapterBlocks& blocks,
                        GradWrite write) {
  CHECK_SHAPE(u, dy.dim(0), blocks.count * db.dim(1));
  check_blocks(make_tensor(nullptr, u.dtype, {dy.dim(1), u.dim(1)}), db, blocks);
  CHECK(u.dtype == dy.dtype && db.dtype == accumulate_dtype(dy.dtype), "{} and {} for a gradient in {}",
        dtype_name(dy.dtype), dtype_name(u.dtype), dtype_name(db.dtype));
  DISPATCH(c, adapter_backward_b, db, dy, u, scale, blocks, write);
}

}  // namespace temper
