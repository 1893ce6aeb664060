#pragma once
// Tiles of the rows of experts, of `size` rows each and numbered without their counts: expert e has those
// from first_tile on, of which the last may have no rows.

#include "kernels/cuda/device/canonical.cuh"

namespace temper::cuda {

/// Tiles of all experts, those without rows too.
inline int64_t most_row_tiles(int64_t rows, int experts, int size) { return rows / size + experts; }

TEMPER_DEVICE int first_tile(const int32_t* offsets, int expert, int size) {
  return offsets[expert] / size + expert;
}
/// The last expert whose first tile is at most `tile`.
TEMPER_DEVICE int expert_of_tile(const int32_t* offsets, int experts, int tile, int size) {
  int low = 0, high = experts;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first_tile(offsets, middle, size) <= tile)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace temper::cuda
