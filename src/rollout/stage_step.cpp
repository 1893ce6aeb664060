// Steps of a generation over stages: as many are under way as there are stages, so that each has one to work
// on. In a turn a stage works on each of them with its first part of the model, then with its second: when it
// is through with the first part of the last step, the first step comes back from the last stage. That one
// draws tokens after the last part, which go to the first stage, and from stage to stage before the stream of
// the step that begins when they are known. Every stage begins and ends the same steps in the same order.

#include "src/models/join_pass.h"
#include "src/rollout/engine.h"

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
std::vector<double> Generation::take_due(Ctx& c, UnderWay& due) {
  const Pipeline& pipeline = engine_.pipeline_;
  if (due.targets.empty()) return {};
  if (due.drawn.empty()) {
    const Tensor drawn = room_for(c, due.targets.size());
    const Parcel in = parcel(pipeline.stage() - 1, drawn);
    pipeline.exchange(c, {}, {&in, 1}, kWhat);
    due.drawn = to_host<double>(c, drawn);
  }
  const auto logprobs = due.drawn.begin() + std::ssize(due.targets);
  append(due.targets, {{due.drawn.begin(), logprobs}, {logprobs, due.drawn.end()}});
  return std::move(due.drawn);
}

/// Each step under way goes through the parts of this stage.
void Generation::turn_of_stage(Ctx& c, bool begins) {
  const ArenaScope scope(c.scratch);
  Tensor room;
  for (int part = 0; part < parts(); ++part)
    for (int step = 0; step < engine_.pipeline_.stages(); ++step)
      slot_of_stage(c, {part, step}, room, begins);
}

/// `room`: of the turn, for the streams that come back from the last stage.
void Generation::slot_of_stage(Ctx& c, const Slot& now, Tensor& room, bool begins) {
  const Pipeline& pipeline = engine_.pipeline_;
  const int last = pipeline.stages() - 1, next = pipeline.last() ? 0 : pipeline.stage() + 1;
  // What the last stage makes now is worked on by the first one next.
  const bool stays = now.step < last, draws = (stays ? now.part : now.part + 1) % parts() == 0;
  UnderWay& coming = under_way_[static_cast<size_t>(stays ? now.step + 1 : 0)];
  const Tensor back = pipeline.first() && !draws ? room_for_stream(c, coming, room) : Tensor();
  const ArenaScope scope(c.scratch);
  UnderWay& step = under_way_[static_cast<size_t>(now.step)];
  std::vector<Parcel> out, in;
  std::vector<double> due;
  if (now.part == 0) {
    due = take_due(c, step);
    if (!due.empty() && pipeline.stage() + 1 < last) out.push_back(parcel(next, as_tensor(c, due)));
    begin_step(step, begins);
  }
  const LaneSpan span(c.lane, work_of_step(step.rows), std::ssize(step.rows));
  if (const Tensor made = work_on(c, step, now.part); !made.empty()) out.push_back(parcel(next, made));
  if (!back.empty()) in.push_back(parcel(last, back));
  const bool tokens = pipeline.first() && draws && !coming.targets.empty();
  const Tensor drawn = tokens ? room_for(c, coming.targets.size()) : Tensor();
  if (tokens) in.push_back(parcel(last, drawn));
  pipeline.exchange(c, out, in, kWhat);
  coming.x = back;
  if (tokens) coming.drawn = to_host<double>(c, drawn);
}

/// The largest of the steps under way: there are two at most in a turn.
Tensor Generation::room_for_stream(Ctx& c, const UnderWay& coming, Tensor& room) const {
  if (!coming.batch) return {};
  int64_t most = 0;
  for (const UnderWay& step : under_way_) most = std::max(most, step.batch ? step.batch->num_rows() : 0);
  const Model& model = engine_.model_;
  if (room.empty() || room.dim(0) < most)
    room = c.scratch.make({most, model.config().hidden_size}, model.dtype());
  return rows(room, 0, coming.batch->num_rows());
}

void Generation::begin_step(UnderWay& step, bool begins) {
  step = {};
  if (!begins || scheduler_.done()) return;
  step.rows = scheduler_.next();
  if (step.rows.empty()) return;
  step.batch.emplace(step.rows);
  scheduler_.commit(step.rows);
  for (const ScheduledRows& part : step.rows) ++part.sequence->steps;
}

/// What this stage makes of a step with a part of it, for the next one: the stream, after the model's last
/// part tokens. Prompts are forked behind the last part: before, their pages lack layers.
Tensor Generation::work_on(Ctx& c, UnderWay& step, int part) {
  const Model& model = engine_.model_;
  const Pipeline& pipeline = engine_.pipeline_;
  const ModelPart of(model, model.parts()[static_cast<size_t>(part)]);
  if (!engine_.others_.somewhere(step.batch.has_value())) return {};
  if (!step.batch) return join_forward(c, of), Tensor();
  Tensor x = step.x;
  if (!pipeline.first())
    x = pipeline.receive(c, step.batch->num_rows(), model.config().hidden_size, model.dtype());
  const Tensor made = step.batch->forward(c, of, engine_.cache_, x);
  if (part + 1 == parts()) {
    for (const ScheduledRows& of_one : step.rows) --of_one.sequence->steps;
    step.targets = fork_prompts(step.batch->last_rows());
  }
  if (!of.is_last()) return made;
  if (step.targets.empty()) return {};
  const DrawnTokens drawn = sampler_.draw(c, model.head(), made, step.targets);
  step.drawn.assign(drawn.tokens.begin(), drawn.tokens.end());
  step.drawn.insert(step.drawn.end(), drawn.logprobs.begin(), drawn.logprobs.end());
  return as_tensor(c, step.drawn);
}

int Generation::parts() const { return static_cast<int>(std::ssize(engine_.model_.parts())); }

/// Those that are under way.
void Generation::end_steps(Ctx& c) {
  const auto draws = [](const UnderWay& step) { return !step.targets.empty(); };
  const bool here = std::any_of(under_way_.begin(), under_way_.end(), draws);
  if (engine_.others_.somewhere(here)) turn_of_stage(c, false);
}

}  // namespace temper
