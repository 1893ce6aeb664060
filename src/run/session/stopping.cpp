#include "src/run/session/stopping.h"

#include "src/core/log.h"
#include "src/run/session/saving.h"

namespace temper {

void stop_after(RunRank& rank, int64_t step) {
  save_stopped(rank, step);
  rank.end.tell();  // not before: the checkpoint takes steps that others are still at work on
  // A note may have been faster than the message that says why.
  for (const Stopwatch waited; rank.writes() && rank.end.reason().empty() && waited.seconds() < 1;) {
    rank.end.look();
    rank.mailbox->pause(0, "why the run was stopped");
  }
  if (rank.writes()) log::info("{}: saved step {}; run the same command again", rank.end.reason(), step);
  if (rank.folder) rank.folder->events().write("stop", {{"step", step}, {"reason", rank.end.reason()}});
}

bool wait_for_end(RunRank& rank) {
  while (!rank.end.look()) rank.mailbox->pause(0, "end of the run");
  return rank.end.after().has_value();
}

}  // namespace temper
