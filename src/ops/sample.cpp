#include "src/ops/sample.h"

#include <algorithm>
#include <type_traits>
#include <vector>

namespace temper {

void sample(Ctx& c, Tensor tokens, Tensor logprob, CTensor hidden, CTensor w, SampleRows rows,
            int64_t num_sampleable) {
  const int64_t n = hidden.dim(0), D = hidden.dim(1);
  CHECK_SHAPE(hidden, n, D);
  CHECK_SHAPE(w, w.dim(0), D);
  CHECK_SHAPE(tokens, n);
  CHECK_SHAPE(logprob, n);
  CHECK(static_cast<int64_t>(rows.list.size()) == n, "{} keys for {} rows", rows.list.size(), n);
  CHECK(D > 0 && num_sampleable > 0 && num_sampleable <= w.dim(0), "width {}, {} of {} ids may be drawn", D,
        num_sampleable, w.dim(0));
  for (const SampleRow& row : rows.list)
    CHECK(std::adjacent_find(row.edits.begin(), row.edits.end(),
                             [](const LogitEdit& a, const LogitEdit& b) { return a.id >= b.id; }) ==
              row.edits.end(),
          "the edits of a row are not in the order of their ids");
  DISPATCH(c, sample, tokens, logprob, hidden, w, rows, num_sampleable);
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
  std::vector<int32_t> ends{0};
  for (const SampleRow& row : rows) {
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    ends.push_back(static_cast<int32_t>(edits.size()));
  }
  SampleRows placed{rows, place(rows)};
  if (edits.empty()) return placed;
  placed.edits_on_device = place(edits);
  placed.edit_ends = place(ends);
  return placed;
}

}  // namespace temper
