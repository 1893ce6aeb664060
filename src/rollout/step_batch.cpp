#include "src/rollout/step_batch.h"

#include <algorithm>
#include <optional>

namespace temper {

const char* work_of_step(std::span<const ScheduledRows> step) {
  const auto alone = [](const ScheduledRows& part) { return part.rows == 1; };
  if (std::all_of(step.begin(), step.end(), alone)) return "decode, sequences";
  return std::none_of(step.begin(), step.end(), alone) ? "prefill, sequences"
                                                       : "prefill and decode, sequences";
}

StepBatch::StepBatch(std::span<const ScheduledRows> step) {
  size_t pages = 1;
  for (const ScheduledRows& part : step) pages = std::max(pages, part.sequence->pages.size());
  for (const ScheduledRows& part : step) {
    Sequence& s = *part.sequence;
    for (int64_t i = s.cached; i < s.cached + part.rows; ++i) {
      tokens_.push_back(s.tokens[static_cast<size_t>(i)]);
      positions_.push_back(static_cast<int32_t>(i));
    }
    cu_seqlens_.push_back(static_cast<int32_t>(tokens_.size()));
    lengths_.push_back(static_cast<int32_t>(s.cached + part.rows));
    tails_.push_back(s.state.tail);
    read_slots_.push_back(s.state.from);
    written_slots_.push_back(s.state.slot);
    page_table_.insert(page_table_.end(), s.pages.begin(), s.pages.end());
    page_table_.resize(lengths_.size() * pages, 0);
    if (part.rows == s.missing()) last_rows_.push_back({static_cast<int32_t>(tokens_.size()) - 1, &s});
  }
}

Tensor StepBatch::forward(Ctx& c, const ModelPart& part, const KvCache& cache, const Tensor& x,
                          const RouterNotes* routers) const {
  const int64_t rows = num_rows(), n = std::ssize(lengths_), pages = std::ssize(page_table_) / n;
  const PagedKv kv = cache.view(to_device(c, view_of(page_table_.data(), {n, pages})),
                                to_device(c, view_of(lengths_.data(), {n})));
  std::optional<DeltaPages> states;
  const auto numbers = [&](const std::vector<int32_t>& list) {
    return to_device(c, view_of(list.data(), {n}));
  };
  if (cache.states())
    states = cache.states()->view(numbers(tails_), numbers(read_slots_), numbers(written_slots_), kv.lengths);
  const Batch batch{.tokens = to_device(c, view_of(tokens_.data(), {rows})),
                    .positions = to_device(c, view_of(positions_.data(), {rows})),
                    .cu_seqlens = to_device(c, view_of(cu_seqlens_.data(), {n + 1})),
                    .kv = &kv,
                    .states = states ? &*states : nullptr,
                    .routers = routers};
  if (part.is_last()) return forward_pass(c, part, batch, nullptr, {x, {}});
  const Tensor y = c.scratch.make({rows, part.model.config().hidden_size}, part.model.dtype());
  forward_stage(c, part, batch, {x, {}}, nullptr, y);
  return y;
}

}  // namespace temper
