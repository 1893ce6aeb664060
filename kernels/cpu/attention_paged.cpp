#include "kernels/cpu/attention_batch.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/linear.h"

namespace temper::cpu {
namespace {

/// From so many query rows on, keys and values in a narrow dtype are widened once per batch, not once per row
/// tile.
constexpr int64_t kRowsToPack = 32;

/// The pages of one layer.
template <class S>
struct Pages {
  S* keys;
  S* values;
  const int32_t* table;  // [S, table_row]
  int64_t table_row, page_tokens, head_dim, kv_heads;

  Pages(const PagedKv& kv, int64_t layer, const AttentionShape& shape)
      : table(kv.page_table.as<int32_t>()),
        table_row(kv.page_table.dim(1)),
        page_tokens(kv.page_tokens),
        head_dim(shape.head_dim),
        kv_heads(shape.kv_heads) {
    const int64_t layer_size = kv.keys.dim(1) * page_size();
    keys = kv.keys.as<S>() + layer * layer_size;
    values = kv.values.as<S>() + layer * layer_size;
  }
  int64_t head_size() const { return page_tokens * head_dim; }
  int64_t page_size() const { return kv_heads * head_size(); }
  KeyGroups<S> of(int64_t sequence, int64_t kv_head) const {
    return {.keys = keys + kv_head * head_size(),
            .values = values + kv_head * head_size(),
            .pages = table + sequence * table_row,
            .page_groups = page_tokens / kKeyGroup,
            .page_stride = page_size(),
            .key_group = kKeyGroup * head_dim,
            .value_row = head_dim};
  }
};

template <class S>
void append(Ctx& ctx, const Pages<S>& pages, const S* qkv, const std::vector<SequenceRows>& sequences,
            const AttentionShape& shape) {
  const int64_t dh = shape.head_dim;
  const std::vector<PositionTile> tiles = position_tiles(sequences, shape.kv_heads, kKeyGroup);
  parallel_ranges(ctx.threads, static_cast<int64_t>(tiles.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PositionTile& t = tiles[static_cast<size_t>(i)];
      const int64_t row = sequences[static_cast<size_t>(t.sequence)].row_of(t.first),
                    slot = t.first % kKeyGroup;
      const S* k = qkv + row * shape.qkv_width() + shape.q_width() + t.kv_head * dh;
      const KeyGroups<S> groups = pages.of(t.sequence, t.kv_head);
      const int64_t head = t.kv_head * pages.head_size(), g = t.first / kKeyGroup;
      S* keys = pages.keys + head + groups.key_offset(g) + slot;
      S* values = pages.values + head + groups.value_offset(g) + slot * dh;
      for (int64_t u = 0; u < t.positions; ++u, k += shape.qkv_width()) {
        for (int64_t d = 0; d < dh; ++d) keys[d * kKeyGroup + u] = k[d];
        std::copy_n(k + shape.kv_width(), dh, values + u * dh);
      }
    }
  });
}

/// The sequences whose keys are packed for this batch, all others have length 0: those with a head_dim that
/// is no whole number of panels, or with many query rows over a narrow dtype.
template <class S>
std::vector<SequenceRows> sequences_to_pack(const std::vector<SequenceRows>& sequences,
                                            const AttentionShape& shape) {
  std::vector<SequenceRows> packed = sequences;
  for (SequenceRows& s : packed) {
    const bool many =
        !std::is_same_v<S, Accumulate<S>> && s.rows * (shape.q_heads / shape.kv_heads) >= kRowsToPack;
    s = s.rows > 0 && (many || shape.head_dim % kLanes != 0) ? SequenceRows{s.row, s.length, s.length}
                                                             : SequenceRows{};
  }
  return packed;
}

template <class S>
PackedKeys<Accumulate<S>> pack_pages(Ctx& ctx, const Pages<S>& pages,
                                     const std::vector<SequenceRows>& sequences,
                                     const std::vector<int64_t>& starts) {
  const int64_t dh = pages.head_dim;
  const PackedKeys<Accumulate<S>> packed(ctx.scratch, pages.kv_heads, starts.back(), dh);
  const std::vector<PositionTile> groups = position_tiles(sequences, pages.kv_heads, kKeyGroup);
  parallel_ranges(ctx.threads, static_cast<int64_t>(groups.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PositionTile& t = groups[static_cast<size_t>(i)];
      const KeyGroups<S> from = pages.of(t.sequence, t.kv_head);
      const int64_t group = t.first / kKeyGroup, g = starts[static_cast<size_t>(t.sequence)] + group;
      const S* keys = from.keys + from.key_offset(group);
      Accumulate<S>* to = packed.keys.at(t.kv_head, g);
      for (int64_t d = 0; d < dh * kKeyGroup; ++d) to[d] = load(keys[d]);
      pack_rows_padded(packed.values.at(t.kv_head, g), from.values + from.value_offset(group), dh,
                       t.positions, dh);
    }
  });
  return packed;
}

template <class S>
void paged(Ctx& ctx, S* out, const S* qkv, const Pages<S>& pages, const std::vector<SequenceRows>& sequences,
           const AttentionShape& shape, double scale) {
  ArenaScope scope(ctx.scratch);
  const int64_t heads = shape.q_heads / shape.kv_heads;
  const std::vector<SequenceRows> to_pack = sequences_to_pack<S>(sequences, shape);
  const std::vector<int64_t> starts = group_starts(to_pack);
  const auto packed = pack_pages(ctx, pages, to_pack, starts);
  const ThreadBuffers<Accumulate<S>> buffers(ctx, attend_workspace(heads, shape.head_dim));
  const std::vector<PositionTile> tiles =
      position_tiles(sequences, shape.kv_heads, positions_per_tile(heads));
  parallel_for(ctx.threads, static_cast<int64_t>(tiles.size()), [&](int64_t i) {
    const PositionTile& t = tiles[static_cast<size_t>(i)];
    const auto s = static_cast<size_t>(t.sequence);
    const QueryRows<S> rows = query_rows(out, qkv, shape, sequences[s].row_of(t.first), t);
    if (to_pack[s].length > 0)
      attend(rows, packed.from(t.kv_head, starts[s]), scale, buffers.mine());
    else
      attend(rows, pages.of(t.sequence, t.kv_head), scale, buffers.mine());
  });
}

}  // namespace

void append_kv(Ctx& ctx, PagedKv kv, int64_t layer, CTensor qkv, CTensor cu_seqlens, AttentionShape shape) {
  const std::vector<SequenceRows> sequences = cached_sequences(cu_seqlens, qkv.dim(0), kv);
  dispatch_storage(qkv.dtype, [&](auto s) {
    using S = decltype(s);
    append(ctx, Pages<S>(kv, layer, shape), qkv.as<S>(), sequences, shape);
  });
}

void attention_paged(Ctx& ctx, Tensor out, CTensor qkv, PagedKv kv, int64_t layer, CTensor cu_seqlens,
                     AttentionShape shape, double scale) {
  const std::vector<SequenceRows> sequences = cached_sequences(cu_seqlens, qkv.dim(0), kv);
  dispatch_storage(qkv.dtype, [&](auto s) {
    using S = decltype(s);
    paged(ctx, out.as<S>(), qkv.as<S>(), Pages<S>(kv, layer, shape), sequences, shape, scale);
  });
}

}  // namespace temper::cpu
