#include "src/rollout/prompt_scores.h"

#include "src/ops/rows.h"

namespace temper {

void score_prompts(Ctx& c, std::span<const ScheduledRows> step, const LogprobHead& head, const Tensor& hidden,
                   int64_t num_sampleable) {
  std::vector<int32_t> index, targets;
  std::vector<PromptScore*> scores;
  int32_t row = 0;
  for (const ScheduledRows& part : step) {
    Sequence& s = *part.sequence;
    for (int64_t i = s.cached; i < s.cached + part.rows; ++i, ++row) {
      if (!s.scores || i + 1 >= s.prompt_tokens) continue;
      index.push_back(row);
      targets.push_back(s.tokens[static_cast<size_t>(i + 1)]);
      scores.push_back(&(*s.scores)[static_cast<size_t>(i + 1)]);
    }
  }
  if (index.empty()) return;
  const ArenaScope scope(c.scratch);
  const auto n = static_cast<int64_t>(index.size());
  const Tensor chosen = c.scratch.make({n, hidden.dim(1)}, hidden.dtype);
  gather_rows(c, chosen, hidden, to_device(c, view_of(index.data(), {n})));
  const TokenStats stats = head.forward(c, chosen, to_device(c, view_of(targets.data(), {n})), 1.0);
  SampleRow greedy;
  greedy.options.temperature = 0;
  const std::vector<SampleRow> rows(index.size(), greedy);
  const Sampled best = head.sample(c, chosen, place_rows(c, rows), num_sampleable);
  const std::vector<double> logprobs = to_host<double>(c, stats.logprob),
                            bests = to_host<double>(c, best.logprob);
  const std::vector<int32_t> tokens = to_host<int32_t>(c, best.tokens);
  for (size_t i = 0; i < scores.size(); ++i) *scores[i] = {logprobs[i], tokens[i], bests[i]};
}

}  // namespace temper
