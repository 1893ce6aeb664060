#pragma once
// What the prefill kernel works through: tiles of query rows.

#include "kernels/cuda/attention.h"

namespace temper::cuda {

constexpr int kTileRows = 128;

/// Up to 128 query rows of one sequence, and the keys they see.
struct Tile {
  int q_row, q_rows, q_pos;  // first packed row, count, position of the first
  int kv_row, kv_len;        // first packed key row (unused with pages), keys of the sequence
  int sequence;
  TEMPER_DEVICE int blocks(int keys) const { return (q_pos + q_rows - 1) / keys + 1; }
};

struct TileList {
  int num_tiles, next;  // next: beyond the first of every block
};

/// In scratch memory, on the device.
struct TilesOfCall {
  Tile* tiles;
  TileList* list;
  int most;  // that there may be
};

/// Tiles of all sequences, those with most keys first; of sequences with one row only where no decode kernel
/// runs beside.
TilesOfCall list_tiles(Ctx& ctx, const AttentionCall& a);

}  // namespace temper::cuda
