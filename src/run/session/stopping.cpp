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

void stop_beside(RunLinks& links, Saver& saver) {
  EndOfRun& end = links.end;
  // Its team may know before it does.
  while (!end.look() && !(links.keeps() && end.last_save())) links.mailbox->pause(0, "end of the run");
  if (end.has_come()) return;
  saver.save_beside(end.last_save()->step, end.last_save()->produced, Saving::due);
  links.wait_for_end();
}

}  // namespace temper
