#include "src/run/session/session.h"

#include <utility>

#include "src/core/process/progress.h"
#include "src/core/process/stop_signal.h"
#include "src/run/session/beside_trainer.h"
#include "src/run/session/saving.h"
#include "src/run/session/step_line.h"
#include "src/run/session/stopping.h"

namespace temper {
namespace {

void publish_weights(RunRank& rank, int64_t step) {
  enter_phase(Phase::sync, step);
  const TraceSpan span(rank.trace, step, "trainer", fmt::format("send weights {}", step));
  const PhaseTimer timer(*rank.journal, "sync_weights");
  if (rank.writes())
    for (const int to : rank.task.plan.weight_receivers())
      rank.trace.arrow(step, "trainer", weights_arrow(step, to), Trace::Arrow::begins);
  rank.weights.publish(rank.host->ctx(), rank.policy->parameters(), step);
}

/// This rank's roles in a step, up to one that finds the end of the run: false then.
bool run_roles(RunRank& rank, int64_t step) {
  for (size_t i = 0; i < rank.roles.size(); ++i) {
    if (rank.placement.roles[i].learns() && step <= rank.resume.step)
      continue;  // what generates may be behind
    if (!rank.roles[i]->phase(step)) return false;
    rank.lend_memory();
    if (rank.placement.roles[i].row->duty == Duty::trains) {
      decide_saves(rank, step);
      learn(rank, step);
    }
  }
  return true;
}

/// True when the run was stopped before its last step.
bool run_steps(RunRank& rank) {
  const int64_t last = rank.last_step();
  Stopwatch watch;  // what comes after a step (its weights go out, it is saved) is a part of the next one
  for (int64_t step = rank.first_step(); step <= last; ++step) {
    LaneSpans& spans = rank.host->ctx().lane.spans();
    if (rank.trace.on(step)) spans.start(rank.host->ctx().lane, [&] { return rank.trace.now(); });
    if (!run_roles(rank, step) || !follow_trainer(rank, step)) {
      rank.trains() ? stop_after(rank, rank.end.trained()) : stop_beside(rank);
      return true;
    }
    if (spans.on()) rank.trace.spans(step, device_lane(rank.device), spans.take());
    if (!rank.trains()) continue;  // it is told of the end
    rank.groups.finish(step);
    finish_step(rank, step, std::exchange(watch, {}).seconds());
    if (step < last && rank.end.agree(*rank.trainers, rank.groups.stop_requested())) {
      stop_after(rank, step);
      return true;
    }
    if (step < last) publish_weights(rank, step);
    save_step(rank, step);
  }
  rank.end.tell_idle();
  return false;
}

}  // namespace

int run_session(const RunTask& task, const MpiSession& mpi, std::span<const RoleRow> table) {
  RunRank rank(task, mpi, table);
  bool stopped = false;
  signals_ask();
  rank.world->barrier("start of the run");  // no step before a signal to any rank saves it
  if (rank.roles.empty()) {
    stopped = wait_for_end(rank);
  } else {
    start_run(rank);
    if (rank.trains() && rank.resume.step < rank.last_step())
      rank.weights.publish(rank.host->ctx(), rank.policy->parameters(), rank.resume.step);
    stopped = !finish_begun_step(rank) || run_steps(rank);
  }
  enter_phase(Phase::sync);
  rank.weights.disconnect();
  rank.trace.write(*rank.world, rank.folder ? rank.folder->path("trace") : "");
  rank.world->barrier("end of the run");
  if (rank.folder && !stopped) rank.folder->events().write("end", {{"step", rank.last_step()}});
  return static_cast<int>(stopped ? Exit::retry : Exit::ok);
}

}  // namespace temper
