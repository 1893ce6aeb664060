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
  StepLists& to = lists_;
  for (const ScheduledRows& part : step) {
    Sequence& s = *part.sequence;
    const int64_t end = part.first + part.rows;
    for (int64_t i = part.first; i < end; ++i) {
      to.tokens.push_back(s.tokens[static_cast<size_t>(i)]);
      to.positions.push_back(static_cast<int32_t>(i));
    }
    to.cu_seqlens.push_back(static_cast<int32_t>(to.tokens.size()));
    to.lengths.push_back(static_cast<int32_t>(end));
    to.tails.push_back(s.state.tail);
    to.read_slots.push_back(s.state.from);
    to.written_slots.push_back(s.state.slot);
    to.page_table.insert(to.page_table.end(), s.pages.begin(), s.pages.end());
    to.page_table.resize(to.lengths.size() * pages, 0);
    if (end == s.size()) last_rows_.push_back({static_cast<int32_t>(to.tokens.size()) - 1, &s});
  }
}

Tensor StepBatch::forward(Ctx& c, const ModelPart& part, const KvCache& cache, const Tensor& x,
                          const RouterNotes* routers) const {
  const StepLists& of = lists_;
  const auto numbers = [&](const std::vector<int32_t>& list) {
    return to_device(c, view_of(list.data(), {std::ssize(list)}));
  };
  const CTensor table = view_of(of.page_table.data(), {of.num_sequences(), of.num_pages()});
  const PagedKv kv = cache.view(to_device(c, table), numbers(of.lengths));
  std::optional<DeltaPages> states;
  if (cache.states())
    states = cache.states()->view(numbers(of.tails), numbers(of.read_slots), numbers(of.written_slots),
                                  kv.lengths);
  const Batch batch{.tokens = numbers(of.tokens),
                    .positions = numbers(of.positions),
                    .cu_seqlens = numbers(of.cu_seqlens),
                    .kv = &kv,
                    .states = states ? &*states : nullptr,
                    .routers = routers};
  if (part.is_last()) return forward_pass(c, part, batch, nullptr, {x, {}});
  const Tensor y = c.scratch.make({num_rows(), part.model.config().hidden_size}, part.model.dtype());
  forward_stage(c, part, batch, {x, {}}, nullptr, y);
  return y;
}

}  // namespace temper
