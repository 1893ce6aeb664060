#include "src/rollout/pool_entries.h"

#include "src/core/ctx.h"
#include "src/core/device.h"
#include "src/ops/rows.h"

namespace temper {

/// By a kernel: a driver takes the longer to begin a copy of pieces the farther apart they are, 0.7 ms for a
/// page of a pool of 30 GB.
void copy_entry(Lane& lane, const Tensor& pool, int64_t to, int64_t from) {
  const int64_t size = pool.dim(2);
  const Tensor layers = make_tensor(pool.raw(), pool.dtype, {pool.dim(0), pool.dim(1) * size});
  Arena none(lane.device());
  Ctx c{.scratch = none, .lane = lane};
  copy_columns(c, layers, to * size, layers, from * size, size);
  lane.order();  // kernels may read pages before the one before them ends
}

void poison_entry(Lane& lane, const Tensor& pool, int64_t to) {
  const int64_t bytes = pool.dim(2) * dtype_size(pool.dtype);
  device::fill_rows(lane, static_cast<char*>(pool.raw()) + to * bytes, 0xff, bytes, pool.dim(0),
                    pool.dim(1) * bytes);
}

}  // namespace temper
