#include "src/ops/sample.h"

#include <algorithm>

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
  for (const SampleRow& row : rows.list)
    CHECK(c.device == Device::cpu || row.edits.empty(), "{} edits of a row on a GPU", row.edits.size());
  DISPATCH(c, sample, tokens, logprob, hidden, w, rows, num_sampleable);
}

SampleRows place_rows(Ctx& c, std::span<const SampleRow> rows) {
  if (c.device == Device::cpu) return {rows};
  const auto bytes = static_cast<int64_t>(rows.size_bytes());
  void* to = c.arena.allocate(bytes);
  device::copy_to_device(c.device, to, rows.data(), bytes);
  return {rows, static_cast<const SampleRow*>(to)};
}

}  // namespace temper
