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

void check_accumulated(const CTensor& y, const CTensor& z) {
  CHECK(y.rank == z.rank && y.dims == z.dims, "shapes {} and {}", y.shape_text(), z.shape_text());
  CHECK(z.dtype == accumulate_dtype(y.dtype), "{} for {}", dtype_name(z.dtype), dtype_name(y.dtype));
}

}  // namespace

void adapter_weights(Ctx& c, Tensor w, CTensor b, const AdapterBlocks& blocks) {
  check_blocks(w, b, blocks);
  CHECK(w.dtype == b.dtype, "{} and {}", dtype_name(w.dtype), dtype_name(b.dtype));
  DISPATCH(c, adapter_weights, w, b, blocks);
}

void adapter_gradient(Ctx& c, Tensor db, CTensor dw, double scale, const AdapterBlocks& blocks,
                      GradWrite write) {
  check_blocks(dw, db, blocks);
  CHECK(db.dtype == dw.dtype && db.dtype == accumulate_dtype(db.dtype), "gradients in {} and {}",
        dtype_name(db.dtype), dtype_name(dw.dtype));
  DISPATCH(c, adapter_gradient, db, dw, scale, blocks, write);
}

void add_scaled(Ctx& c, Tensor y, CTensor z, double scale) {
  check_accumulated(y, z);
  DISPATCH(c, add_scaled, y, z, scale);
}

void round_scaled(Ctx& c, Tensor y, CTensor z, double scale) {
  check_accumulated(y, z);
  DISPATCH(c, round_scaled, y, z, scale);
}

}  // namespace temper
