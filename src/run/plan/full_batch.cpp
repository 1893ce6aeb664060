#include "src/run/plan/full_batch.h"

#include <algorithm>

namespace temper {
namespace {

Trajectory trajectory(const RunPlan& plan, int64_t prompt, int64_t response) {
  const auto n = static_cast<size_t>(response);
  Trajectory t;
  t.prompt_tokens.assign(static_cast<size_t>(prompt), 0);
  t.response.tokens.assign(n, 0);
  t.response.mask.assign(n, 1);
  t.advantage = 1;
  if (plan.generates) t.response.logprobs.assign(n, 0.0);
  if (plan.num_scorers() > 0) t.ref_logprobs.assign(n, 0.0);
  return t;
}

}  // namespace

int64_t FullBatch::sequences(int64_t budget) const {
  return std::min(most, budget / rows() + (budget % rows() > 0));
}

int64_t FullBatch::tokens(int64_t budget) const {
  return sequences(budget) < most ? budget : std::min(budget, most * rows());
}

std::array<FullBatch, 2> fullest(const RunPlan& plan, int64_t most_sequences) {
  const int64_t longest = plan.lengths.longest, response = std::min(plan.lengths.max_new, longest - 1);
  return {FullBatch{longest - response, response, most_sequences}, FullBatch{1, response, most_sequences}};
}

std::vector<Trajectory> filled(const RunPlan& plan, int64_t budget, const FullBatch& of) {
  std::vector<Trajectory> all;
  int64_t left = budget;
  for (; left >= of.rows() && std::ssize(all) < of.most; left -= of.rows())
    all.push_back(trajectory(plan, of.prompt, of.response));
  if (left > 0 && std::ssize(all) < of.most)  // one row more than targets, so that it is one of these
    all.push_back(
        trajectory(plan, std::max<int64_t>(1, left + 1 - of.response), std::min(left, of.response)));
  return all;
}

std::vector<Trajectory> longest(const RunPlan& plan, int64_t sequences) {
  const int64_t response = std::min(plan.lengths.max_new, plan.lengths.longest - 1);
  return {static_cast<size_t>(sequences), trajectory(plan, plan.lengths.longest - response, response)};
}

}  // namespace temper
