#include "src/run/session/stopping.h"

#include "src/core/log.h"

namespace temper {

void stop_after(RunSteps& run, int64_t step) {
  RunLinks& links = run.rank.links;
  run.saver.save_stopped(step);
  links.end.tell();  // not before: the checkpoint takes steps that others are still at work on
  // A note may have been faster than the message that says why.
  for (const Stopwatch waited; links.writes() && links.end.reason().empty() && waited.seconds() < 1;) {
    links.end.look();
    links.mailbox->pause(0, "why the run was stopped");
  }
  if (links.writes()) log::info("{}: saved step {}; run the same command again", links.end.reason(), step);
  run.rank.files.write_event("stop", {{"step", step}, {"reason", links.end.reason()}});
}

void end_at_goal(RunSteps& run, int64_t step) {
  RunLinks& links = run.rank.links;
  links.end.agree(*links.trainers, /*also=*/true);
  run.saver.save_stopped(step);
  links.end.tell();
  log::info("{}: the run ends after step {}", run.rank.standings.reason(), step);
}

void end_again(RunLinks& links) {
  if (!links.trains()) {
    links.wait_for_end();
    return;
  }
  links.end.agree(*links.trainers, /*also=*/true);
  links.end.tell();
}

bool is_finished(RunLinks& links, const RunRank& rank, bool stopped) {
  constexpr double kAtStop = 3;  // seconds: a run that is stopped leaves at once
  const std::string met = rank.writes() && rank.standings.reached() ? rank.standings.reason() : "";
  const std::string reason =
      links.world->broadcast(met, rank.placement.ranks.trainer.front(), "why the run is over");
  const bool finished = !stopped || !reason.empty();
  if (!reason.empty())
    rank.files.write_event("end", {{"step", links.end.trained()}, {"reason", reason}});
  else if (finished)
    rank.files.write_event("end", {{"step", rank.last_step()}});
  if (Tracker* const tracker = rank.journal ? rank.journal->tracker() : nullptr)
    tracker->finish({rank.journal->said(), finished}, finished ? rank.config().log.command_seconds : kAtStop);
  return finished;
}

void stop_beside(RunLinks& links, Saver& saver) {
  EndOfRun& end = links.end;
  // Its team may know before it does.
  while (!end.look() && !(links.keeps() && end.last_save())) links.mailbox->pause(0, "end of the run");
  if (end.has_come()) return;
  saver.save_beside(end.last_save()->step, end.last_save()->produced, Saving::due);
  links.wait_for_end();
}

}  // namespace temper
