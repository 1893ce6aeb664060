#include "kernels/cpu/attention_batch.h"

namespace temper::cpu {

std::vector<SequenceRows> packed_sequences(const CTensor& cu_seqlens, int64_t tokens) {
  const int32_t* cu = cu_seqlens.as<int32_t>();
  const int64_t count = cu_seqlens.dim(0) - 1;
  CHECK(cu[0] == 0 && cu[count] == tokens, "cu_seqlens from {} to {} over {} rows", cu[0], cu[count], tokens);
  std::vector<SequenceRows> sequences;
  for (int64_t s = 0; s < count; ++s) {
    const int64_t rows = cu[s + 1] - cu[s];
    CHECK(rows >= 0, "cu_seqlens falls from {} to {}", cu[s], cu[s + 1]);
    sequences.push_back({cu[s], rows, rows});
  }
  return sequences;
}

std::vector<SequenceRows> cached_sequences(const CTensor& cu_seqlens, int64_t tokens, const PagedKv& kv) {
  std::vector<SequenceRows> sequences = packed_sequences(cu_seqlens, tokens);
  const int64_t width = kv.page_table.dim(1), num_pages = kv.keys.dim(1);
  const int32_t* page = kv.page_table.as<int32_t>();
  for (size_t s = 0; s < sequences.size(); ++s, page += width) {
    const int64_t length = kv.lengths.as<int32_t>()[s],
                  pages = (length + kv.page_tokens - 1) / kv.page_tokens;
    CHECK(length >= sequences[s].rows, "{} rows of a sequence of length {}", sequences[s].rows, length);
    CHECK(pages <= width, "length {} needs {} pages of {} tokens, the table has {}", length, pages,
          kv.page_tokens, width);
    for (int64_t p = 0; p < pages; ++p)
      CHECK(page[p] >= 0 && page[p] < num_pages, "page {} of {}", page[p], num_pages);
    sequences[s].length = length;
  }
  return sequences;
}

std::vector<PositionTile> position_tiles(const std::vector<SequenceRows>& sequences, int64_t kv_heads,
                                         int64_t positions) {
  std::vector<PositionTile> tiles;
  for (size_t s = 0; s < sequences.size(); ++s)
    for (int64_t h = 0; h < kv_heads; ++h)
      for (int64_t end = sequences[s].length; end > sequences[s].first_position();) {
        const int64_t first = std::max(sequences[s].first_position(), (end - 1) / positions * positions);
        tiles.push_back({static_cast<int64_t>(s), h, first, end - first});
        end = first;
      }
  return tiles;
}

std::vector<int64_t> group_starts(const std::vector<SequenceRows>& sequences) {
  std::vector<int64_t> starts{0};
  for (const SequenceRows& s : sequences) starts.push_back(starts.back() + num_groups(s.length));
  return starts;
}

}  // namespace temper::cpu
