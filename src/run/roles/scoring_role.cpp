#include "src/run/roles/scoring_role.h"

#include "src/core/process/stop_signal.h"
#include "src/rl/trajectory_bytes.h"
#include "src/run/plan/run_options.h"
#include "src/run/roles/steps_ahead.h"

namespace temper {

ScoringRole::ScoringRole(const RoleParts& parts, const ScoredAs& as)
    : p_(parts),
      as_(as),
      pass_(pass_options(p_.task.config(), p_.task.plan, *p_.role)),
      team_(p_.model_share.team),
      dp_(p_.role->works_together() ? &p_.model_share.mesh->control(Axis::dp) : nullptr),
      model_(p_.model()) {}

bool ScoringRole::work_until(int64_t step, bool to_cut) {
  const auto was_cut = [&] { return to_cut && p_.groups.was_cut(p_.stage); };
  while (p_.lead.done < step && !team_.agree(was_cut, "whether the step was cut, as the leader says"))
    if (!add_logprobs(++p_.lead.done)) return false;
  return true;
}

/// None: all of the step have come, or the run ends. Ranks that gather weights for each micro-batch take all
/// groups of the step at once: the fewest micro-batches.
std::vector<Group> ScoringRole::take_some(int64_t step) {
  std::vector<Group> groups;
  std::optional<Group> next = p_.groups.take(p_.stage, step);
  for (int64_t tokens = 0; next; next = p_.groups.take(p_.stage, step)) {
    tokens += packed_length(*next);
    groups.push_back(std::move(*next));
    if (!dp_ && (tokens >= pass_.token_budget || !p_.groups.waiting(p_.stage, step))) break;
  }
  return groups;
}

/// Groups that have come are scored together, up to a micro-batch: which ones changes no bit of a log-prob.
bool ScoringRole::add_logprobs(int64_t step) {
  enter_phase(as_.phase, step);
  expect_work(p_.portion.of(p_.task.plan.batch.prompts_per_step) * p_.task.plan.batch.samples_per_prompt);
  double seconds = 0;
  while (true) {
    const auto bytes = [&] { return groups_to_bytes(take_some(step)); };
    const std::vector<Group> groups =
        team_.alone() ? take_some(step)
                      : groups_from_bytes(team_.from_leader(bytes, "groups, as the leader got them"));
    if (groups.empty()) break;
    const Stopwatch watch;
    annotate(step, groups);
    seconds += watch.seconds();
    if (dp_) break;  // these were all
  }
  model_.parameters().drop(p_.ctx.lane);
  const auto ended = [&] { return p_.groups.ends_before(p_.stage, step); };
  if (team_.agree(ended, "whether the run ends, as the leader says")) return false;
  close(step, seconds);
  return true;
}

void ScoringRole::annotate(int64_t step, std::span<const Group> groups) {
  const TraceSpan span(p_.trace, step, p_.role->traits->name,
                       fmt::format("{} groups of step {}", groups.size(), step));
  std::vector<const Trajectory*> missing;
  for (const Group& g : groups)
    for (const Trajectory& t : g.samples)
      if ((t.*as_.logprobs).empty()) missing.push_back(&t);
  FirstWeights* const first = p_.models.first_weights(*p_.role);
  if (first && first->changes_weights()) p_.weights.wait_read();
  model_.parameters().fetch(p_.ctx.lane);
  const FirstWeights::Use use(p_.ctx, first);
  std::vector<std::vector<double>> logprobs =
      dp_ ? packed_logprobs(p_.ctx, model_, *dp_, missing, pass_, p_.model_share.pipeline)
          : local_logprobs(p_.ctx, model_, missing, pass_, p_.model_share.pipeline);
  std::vector<Annotation> added;
  for (size_t i = 0; i < missing.size(); ++i)
    added.push_back({missing[i]->data_position, missing[i]->sample, as_.field, std::move(logprobs[i])});
  for (const Trajectory* t : missing) note_work(1, packed_length(*t));
  if (team_.leads()) p_.groups.annotate(p_.stage, step, added);
}

void ScoringRole::close(int64_t step, double seconds) {
  StepNote note{.maxima = team_.largest(p_.memory.metrics(p_.role->traits->phase), "memory of a team, max"),
                .stop_requested = stop_requested()};
  if (!team_.leads()) return;
  note.most[as_.timing] = seconds;
  p_.groups.close(p_.stage, step, note);
}

void ScoringRole::restore(const CheckpointReader& checkpoint) {
  int64_t step = checkpoint.step() + 1;
  for (; checkpoint.has(ahead_name(step)); ++step) {
    const Stopwatch watch;
    if (complete(step, read_ahead(checkpoint, ahead_name(step)))) close(step, watch.seconds());
  }
  // One that a stop cut is closed when it is whole.
  if (checkpoint.has(open_name(step))) complete(step, read_ahead(checkpoint, open_name(step)));
  model_.parameters().drop(p_.ctx.lane);
}

bool ScoringRole::complete(int64_t step, StepInput input) {
  if (!lacks_scores(input, as_.logprobs)) return false;
  std::erase_if(input.groups, [&](const Group& g) { return !p_.portion.has(position_of(g)); });
  annotate(step, input.groups);
  return true;
}

}  // namespace temper
