#include "src/ops/sample.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace temper {

namespace {

int64_t with_filters(std::span<const SampleRow> rows) {
  return std::count_if(rows.begin(), rows.end(), [](const SampleRow& r) { return r.options.filters(); });
}

}  // namespace

void sample(Ctx& c, Tensor tokens, Tensor logprob, CTensor hidden, CTensor w, SampleRows rows,
            int64_t num_sampleable, VocabularyShare share,
            const std::function<void(const SampleChunks&)>& gather) {
  constexpr int64_t kFewRows = 64, kManyRows = 2048;
  const VocabularyShare of = resolved(share, w);
  const int64_t n = hidden.dim(0), first = num_chunks(of.first), filtered = with_filters(rows.list);
  CHECK_SHAPE(tokens, n);
  CHECK_SHAPE(logprob, n);
  CHECK(std::ssize(rows.list) == n, "{} keys for {} rows", rows.list.size(), n);
  CHECK(num_sampleable > 0 && num_sampleable <= of.ids, "{} of {} ids may be drawn", num_sampleable, of.ids);
  // Rows of a recorded graph change from one replay to the next: no row has its place by what it is now.
  const bool keep_all = like_gpu(c.device) && filtered > 0 && !rows.filtered_before;
  const int64_t most = like_gpu(c.device) && filtered == 0 ? kManyRows : kFewRows;
  for (int64_t r = 0; r < n; r += most) {
    ArenaScope scope(c.scratch);
    const int64_t end = std::min(n, r + most);
    const SampleRows some = rows.part(r, end);
    const SampleChunks all =
        make_sample_chunks(c, some.list, keep_all ? end - r : with_filters(some.list), logprob.dtype, of.ids);
    sample_chunks(c, all.part(first, first + num_chunks(w.dim(0))), temper::rows(hidden, r, end), w, some,
                  num_sampleable, of);
    if (gather) gather(all);
    sample_merge(c, temper::rows(tokens, r, end), temper::rows(logprob, r, end), all, some, num_sampleable);
  }
}

SampleChunks make_sample_chunks(Ctx& c, std::span<const SampleRow> rows, int64_t kept, DType accumulate,
                                int64_t vocabulary) {
  const int64_t chunks = num_chunks(vocabulary);
  SampleChunks made{
      .best = c.scratch.make({chunks, std::ssize(rows), 6}, accumulate), .kept = {}, .unedited = {}};
  if (kept == 0) return made;
  made.kept = c.scratch.make({chunks, kept, kVocabularyChunk}, accumulate);
  if (std::any_of(rows.begin(), rows.end(),
                  [](const SampleRow& row) { return row.options.filters() && !row.edits.empty(); }))
    made.unedited = c.scratch.like(made.kept);
  return made;
}

void sample_chunks(Ctx& c, SampleChunks chunks, CTensor hidden, CTensor w, SampleRows rows,
                   int64_t num_sampleable, VocabularyShare share) {
  const int64_t n = hidden.dim(0), D = hidden.dim(1);
  CHECK_SHAPE(w, w.dim(0), D);
  CHECK_SHAPE(chunks.best, num_chunks(w.dim(0)), n, 6);
  CHECK(chunks.best.dtype == accumulate_dtype(hidden.dtype), "statistics in {}",
        dtype_name(chunks.best.dtype));
  CHECK(D > 0 && share.first % kVocabularyChunk == 0 && share.ids > 0, "width {}, a share from {} of {} ids",
        D, share.first, share.ids);
  for (const SampleRow& row : rows.list)
    CHECK(std::adjacent_find(row.edits.begin(), row.edits.end(),
                             [](const LogitEdit& a, const LogitEdit& b) { return a.id >= b.id; }) ==
              row.edits.end(),
          "the edits of a row are not in the order of their ids");
  DISPATCH(c, sample_chunks, chunks, hidden, w, rows, num_sampleable, resolved(share, w));
}

void sample_merge(Ctx& c, Tensor tokens, Tensor logprob, SampleChunks chunks, SampleRows rows,
                  int64_t num_sampleable) {
  const int64_t n = std::ssize(rows.list);
  CHECK_SHAPE(tokens, n);
  CHECK_SHAPE(logprob, n);
  CHECK_SHAPE(chunks.best, chunks.best.dim(0), n, 6);
  CHECK(chunks.best.dtype == logprob.dtype && num_sampleable <= chunks.best.dim(0) * kVocabularyChunk,
        "statistics of {} chunks for {} ids", chunks.best.dim(0), num_sampleable);
  DISPATCH(c, sample_merge, tokens, logprob, chunks, rows, num_sampleable);
}

SampleRows place_rows(Ctx& c, std::span<const SampleRow> rows) {
  if (!like_gpu(c.device)) return {rows};
  const auto place = [&](const auto& list) {
    using T = std::remove_cvref_t<decltype(list[0])>;
    const auto bytes = static_cast<int64_t>(list.size() * sizeof(T));
    auto* to = static_cast<T*>(c.scratch.allocate(bytes));
    device::copy_to_device(c.lane, to, list.data(), bytes);
    return to;
  };
  std::vector<LogitEdit> edits;
  std::vector<int32_t> ends{0}, filtered{0};
  for (const SampleRow& row : rows) {
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    ends.push_back(static_cast<int32_t>(edits.size()));
    filtered.push_back(filtered.back() + (row.options.filters() ? 1 : 0));
  }
  SampleRows placed{rows, place(rows)};
  if (filtered.back() > 0) placed.filtered_before = place(filtered);
  if (edits.empty()) return placed;
  placed.edits_on_device = place(edits);
  placed.edit_ends = place(ends);
  return placed;
}

}  // namespace temper
