#include "src/run/roles/rollout_role.h"

#include "src/run/plan/run_options.h"
#include "src/run/roles/steps_ahead.h"

namespace temper {
RolloutRole::RolloutRole(const RoleParts& parts)
    : p_(parts),
      sessions_(open_sessions(p_)),
      maker_{p_.ctx,
             p_.engine(),
             *p_.tokenizer,
             *p_.rewards,
             p_.model_share.team,
             sessions_.get(),
             plays(p_.task.config())} {}

bool RolloutRole::phase(int64_t step) {
  const int64_t version = step - 1;
  if (was_cut_ && !trains()) {
    p_.weights.wait_for_end();
    return false;
  }
  enter_phase(Phase::sync, step);
  if (!receive_weights(version)) return false;
  while (p_.lead.done < p_.lead.limit(step)) {
    const int64_t next = ++p_.lead.done;
    enter_phase(kPhase, next);
    const TraceSpan span(p_.trace, next, "rollout",
                         fmt::format("generate step {} with weights {}", next, version));
    RolloutStep work(p_, maker_, open_, next, version);
    left_ = work.run(std::move(left_));
    if (p_.model_share.team.leads())
      p_.trace.arrow(next, "rollout", groups_arrow(next, p_.trace.rank()), Trace::Arrow::begins);
    if (was_cut_ = work.was_cut(); was_cut_) break;
  }
  return true;
}

/// False: the run has ended.
bool RolloutRole::receive_weights(int64_t version) {
  const TraceSpan span(p_.trace, version, "rollout", fmt::format("get weights {}", version));
  const ParameterStore* trained = trains() ? &p_.models.trained()->parameters() : nullptr;
  if (!p_.weights.receive(p_.ctx, p_.model().parameters(), trained, version)) return false;
  if (p_.models.trained() != &p_.model())
    p_.trace.arrow(version, "rollout", weights_arrow(version, p_.trace.rank()), Trace::Arrow::ends);
  return true;
}

void RolloutRole::restore(const CheckpointReader& checkpoint) {
  left_ = {read_unfinished(checkpoint)};
  if (const int64_t step = p_.lead.done + 1; checkpoint.has(open_name(step))) {
    const StepNote note = read_ahead(checkpoint, open_name(step)).note;
    open_ = {step, note.round, note.owed};
  }
  p_.prompts->set_position(checkpoint.count("data_position"));
}

std::unique_ptr<Role> make_rollout_role(const RoleParts& parts) {
  return std::make_unique<RolloutRole>(parts);
}

}  // namespace temper
