// Steps of a generation over stages: as many are under way as there are stages, so that each has one to work
// on. A stage gets the stream of a step from the stage before. The last one draws tokens, which go to the
// first stage, and from stage to stage before the stream of the step that begins when they are known. Every
// stage begins and ends the same steps in the same order.

#include "src/rollout/engine.h"
#include "src/rollout/step_batch.h"

namespace temper {
namespace {

constexpr const char* kWhat = "streams of generation between stages, and tokens";

Tensor as_tensor(Ctx& c, const std::vector<double>& values) {
  Tensor t;
  static_cast<CTensor&>(t) = to_device(c, view_of(values.data(), {std::ssize(values)}));
  return t;
}

/// Tokens of so many rows, then their log-probs.
Tensor room_for(Ctx& c, size_t rows) { return c.scratch.make({2 * static_cast<int64_t>(rows)}, DType::f64); }

}  // namespace

/// The tokens of the step that ends now, which its sequences get; empty: none ends.
std::vector<double> Generation::take_due(Ctx& c) {
  const Pipeline& pipeline = engine_.pipeline_;
  if (std::ssize(under_way_) < pipeline.stages()) return {};
  UnderWay due = std::move(under_way_.front());
  under_way_.pop_front();
  if (due.targets.empty()) return {};
  if (due.drawn.empty()) {
    const Pipeline::Parcel in{room_for(c, due.targets.size()), pipeline.stage() - 1};
    pipeline.exchange(c, {}, {&in, 1}, kWhat);
    due.drawn = to_host<double>(c, in.tensor);
  }
  const auto logprobs = due.drawn.begin() + std::ssize(due.targets);
  append(due.targets, {{due.drawn.begin(), logprobs}, {logprobs, due.drawn.end()}});
  return std::move(due.drawn);
}

/// Ends a step and begins one, if there are rows for it.
void Generation::step_of_stage(Ctx& c, bool begins) {
  const ArenaScope scope(c.scratch);
  const Pipeline& pipeline = engine_.pipeline_;
  const int next = pipeline.stage() + 1, last = pipeline.stages() - 1;
  const std::vector<double> due = take_due(c);
  std::vector<Pipeline::Parcel> out, in;
  if (!due.empty() && next < last) out.push_back({as_tensor(c, due), next});
  UnderWay& step = under_way_.emplace_back();
  std::vector<ScheduledRows> rows;
  if (begins && !scheduler_.done()) rows = scheduler_.next();
  const LaneSpan span(c.lane, "engine step, sequences", std::ssize(rows));
  if (!rows.empty()) {
    const StepBatch batch(rows);
    const Tensor made = batch.forward(c, engine_.model_, engine_.cache_, pipeline);
    scheduler_.commit(rows);
    step.targets = fork_prompts(batch.last_rows());
    if (!pipeline.last()) {
      out.push_back({made, next});
    } else if (!step.targets.empty()) {
      const DrawnTokens drawn = sampler_.draw(c, engine_.model_.head(), made, step.targets);
      step.drawn.assign(drawn.tokens.begin(), drawn.tokens.end());
      step.drawn.insert(step.drawn.end(), drawn.logprobs.begin(), drawn.logprobs.end());
      out.push_back({as_tensor(c, step.drawn), 0});
    }
  }
  UnderWay& oldest = under_way_.front();
  if (pipeline.first() && std::ssize(under_way_) == pipeline.stages() && !oldest.targets.empty())
    in.push_back({room_for(c, oldest.targets.size()), last});
  pipeline.exchange(c, out, in, kWhat);
  if (!in.empty()) oldest.drawn = to_host<double>(c, in.front().tensor);
}

/// Those that are under way.
void Generation::end_steps(Ctx& c) {
  const auto draws = [](const UnderWay& step) { return !step.targets.empty(); };
  while (std::any_of(under_way_.begin(), under_way_.end(), draws)) step_of_stage(c, false);
}

}  // namespace temper
