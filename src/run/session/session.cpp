#include "src/run/session/session.h"

#include <utility>

#include "src/core/process/progress.h"
#include "src/core/process/stop_signal.h"
#include "src/run/session/beside_trainer.h"
#include "src/run/session/start/starting.h"
#include "src/run/session/step_line.h"
#include "src/run/session/stopping.h"

namespace temper {
namespace {

void publish_weights(RunSteps& run, int64_t step) {
  RunRank& rank = run.rank;
  enter_phase(Phase::sync, step);
  const TraceSpan span(rank.trace, step, "trainer", fmt::format("send weights {}", step));
  const PhaseTimer timer(*rank.journal, "sync_weights");
  if (rank.writes())
    for (const int to : rank.task.plan.weight_receivers())
      rank.trace.arrow(step, "trainer", weights_arrow(step, to), Trace::Arrow::begins);
  rank.links.weights.publish(rank.host->ctx(), rank.policy->parameters(), step);
}

/// This rank's roles in a step, up to one that finds the end of the run: false then.
bool run_roles(RunSteps& run, int64_t step) {
  RunRank& rank = run.rank;
  for (size_t i = 0; i < rank.roles.size(); ++i) {
    if (rank.placement.roles[i].learns() && step <= rank.files.resume.step)
      continue;  // what generates may be behind
    const bool went_on = rank.roles[i]->phase(step);
    const bool trained = rank.trains() && rank.links.end.trained() == step;
    if (!went_on && trained) close_training(run, step);  // its validation is cut, not the step
    if (!went_on) return false;
    rank.lend_memory();
  }
  if (rank.trains()) close_training(run, step);
  return true;
}

/// True when the run ended before its last step.
bool run_steps(RunSteps& run) {
  RunRank& rank = run.rank;
  const int64_t last = rank.last_step();
  EndOfRun& end = rank.links.end;
  Stopwatch watch;  // what comes after a step (its weights go out, it is saved) is a part of the next one
  for (int64_t step = rank.first_step(); step <= last; ++step) {
    Lane& lane = rank.host->ctx().lane;
    if (rank.trace.on(step)) lane.spans().start(lane, [&] { return rank.trace.now(); });
    if (!run_roles(run, step) || !follow_trainer(run, step)) {
      rank.trains() ? stop_after(run, end.trained()) : stop_beside(rank.links, run.saver);
      return true;
    }
    if (lane.spans().on()) rank.trace.spans(step, device_track(rank.links.device), lane.spans().take());
    if (!rank.trains()) continue;  // it is told of the end
    rank.links.groups.finish(step);
    finish_step(run, step, std::exchange(watch, {}).seconds());
    if (step < last && rank.standings.reached()) {
      end_at_goal(run, step);
      return true;
    }
    if (step < last && end.agree(*rank.links.trainers, rank.links.groups.stop_requested())) {
      stop_after(run, step);
      return true;
    }
    if (step < last) publish_weights(run, step);
    run.saver.save_step(step);
  }
  end.tell_idle();
  return false;
}

/// A rank with roles. True when the run was stopped before its last step.
bool work(RunRank& rank) {
  RunSteps run(rank);
  start_run(rank);
  if (rank.standings.reached()) {
    end_again(rank.links);
    return true;
  }
  if (!finish_begun_step(run))
    stop_after(run, rank.files.resume.step);
  else if (!rank.trains() || !rank.standings.reached())
    return run_steps(run);
  else
    end_at_goal(run, rank.files.resume.step);
  return true;
}

}  // namespace

int run_session(const RunTask& task, const MpiSession& mpi, std::span<const RoleRow> table) {
  RunRank rank(task, mpi, table);
  signals_ask();
  rank.links.world->barrier("start of the run");  // no step before a signal to any rank saves it
  const bool stopped = rank.roles.empty() ? rank.links.wait_for_end() : work(rank);
  enter_phase(Phase::sync);
  rank.links.weights.disconnect();
  rank.trace.write(*rank.links.world, rank.files.folder ? rank.files.folder->path("trace") : "");
  rank.links.world->barrier("end of the run");
  return static_cast<int>(is_finished(rank.links, rank, stopped) ? Exit::ok : Exit::retry);
}

}  // namespace temper
