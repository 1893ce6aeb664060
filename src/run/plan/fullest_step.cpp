#include "src/run/plan/fullest_step.h"

#include <algorithm>

#include "src/rollout/step_graphs.h"

namespace temper {

std::vector<Sequence> fullest_step(const RunPlan& plan, int64_t prefilled) {
  const int64_t length =
      std::min(plan.cache.pages * plan.cache.page_tokens,
               std::max(plan.generates ? plan.lengths.longest : 0, plan.validation.longest));
  const int64_t prompt = std::clamp<int64_t>(
      std::max(plan.generates ? plan.lengths.max_prompt : 0, plan.validation.max_prompt), 1, length);
  const auto add = [&](std::vector<Sequence>& list, int64_t tokens, int64_t rows) {
    Sequence& s = list.emplace_back();
    s.tokens.assign(static_cast<size_t>(tokens), 0);
    s.cached = tokens - rows;
    s.state = {.tail = 0, .from = 0, .slot = 0};
    s.pages.assign(static_cast<size_t>((tokens - 1) / plan.cache.page_tokens + 1), 0);
  };
  std::vector<Sequence> list;
  const int64_t samples = std::max<int64_t>(1, plan.batch.samples_per_prompt);
  int64_t left = prefilled, running = plan.cache.running_sequences;
  for (int64_t prompts = (running + samples - 1) / samples; left > 0 && prompts > 0; --prompts, --running) {
    add(list, prompt, std::min(left, prompt));
    left -= std::min(left, prompt);
  }
  for (; running > 0; --running) add(list, length, 1);
  return list;
}

int64_t recorded_prefill(const RunPlan& plan, const Config& config) {
  if (config.rollout.harness.empty()) return 0;
  const int64_t prefilled = std::min(config.rollout.prefill_chunk_tokens, StepGraphs::kMostPrefilled);
  const int64_t running = plan.cache.running_sequences;
  return StepGraphs::padded_rows(running, prefilled, config.rollout.max_running_sequences) - running;
}

}  // namespace temper
