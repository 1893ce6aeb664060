#include "kernels/cpu/attention_batch.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/linear.h"

namespace temper::cpu {
namespace {

template <class S>
PackedKeys<Accumulate<S>> pack_batch(Ctx& ctx, const S* qkv, const AttentionShape& shape,
                                     const std::vector<SequenceRows>& sequences,
                                     const std::vector<int64_t>& starts) {
  const PackedKeys<Accumulate<S>> packed(ctx.scratch, shape.kv_heads, starts.back(), shape.head_dim);
  const int64_t row = shape.qkv_width();
  const std::vector<PositionTile> groups = position_tiles(sequences, shape.kv_heads, kKeyGroup);
  parallel_ranges(ctx.threads, static_cast<int64_t>(groups.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PositionTile& t = groups[static_cast<size_t>(i)];
      const auto s = static_cast<size_t>(t.sequence);
      const S* keys = qkv + sequences[s].row_of(t.first) * row + shape.q_width() + t.kv_head * shape.head_dim;
      const int64_t g = starts[s] + t.first / kKeyGroup;
      pack_columns(packed.keys.at(t.kv_head, g), keys, row, t.positions, shape.head_dim);
      pack_rows_padded(packed.values.at(t.kv_head, g), keys + shape.kv_width(), row, t.positions,
                       shape.head_dim);
    }
  });
  return packed;
}

template <class S>
void forward(Ctx& ctx, S* out, Accumulate<S>* lse, const S* qkv, int64_t tokens, const CTensor& cu_seqlens,
             const AttentionShape& shape, double scale) {
  ArenaScope scope(ctx.scratch);
  const int64_t heads = shape.q_heads / shape.kv_heads;
  const std::vector<SequenceRows> sequences = packed_sequences(cu_seqlens, tokens);
  const std::vector<int64_t> starts = group_starts(sequences);
  const auto keys = pack_batch(ctx, qkv, shape, sequences, starts);
  const ThreadBuffers<Accumulate<S>> buffers(ctx, attend_workspace(heads, shape.head_dim));
  const std::vector<PositionTile> tiles =
      position_tiles(sequences, shape.kv_heads, positions_per_tile(heads));
  parallel_for(ctx.threads, static_cast<int64_t>(tiles.size()), [&](int64_t i) {
    const PositionTile& t = tiles[static_cast<size_t>(i)];
    const auto s = static_cast<size_t>(t.sequence);
    const int64_t row = sequences[s].row_of(t.first);
    QueryRows<S> rows = query_rows(out, qkv, shape, row, t);
    rows.lse = lse + t.kv_head * heads * tokens + row;
    rows.lse_row = tokens;
    attend(rows, keys.from(t.kv_head, starts[s]), scale, buffers.mine());
  });
}

}  // namespace

void attention_varlen_forward(Ctx& ctx, Tensor out, Tensor lse, CTensor qkv, CTensor cu_seqlens,
                              AttentionShape shape, double scale) {
  dispatch_storage(qkv.dtype, [&](auto s) {
    using S = decltype(s);
    forward(ctx, out.as<S>(), lse.as<Accumulate<S>>(), qkv.as<S>(), qkv.dim(0), cu_seqlens, shape, scale);
  });
}

}  // namespace temper::cpu
