#include "src/run/session/beside_trainer.h"

#include "src/run/session/saving.h"

namespace temper {

void learn(RunRank& rank, int64_t step) {
  for (size_t i = 0; i < rank.roles.size(); ++i) {
    if (!rank.placement.roles[i].learns()) continue;
    rank.roles[i]->learn(step, rank.groups.peek(step));
    rank.lend_memory();
  }
}

bool follow_trainer(RunRank& rank, int64_t step) {
  if (rank.trains() || !rank.keeps() || step <= rank.resume.step) return true;
  const std::optional<Saving> saving = rank.end.wait_trained(step);
  if (!saving) return false;
  learn(rank, step);
  if (rank.placement.learns()) rank.groups.finish(step);
  if (*saving != Saving::none) save_beside(rank, step, step + rank.task.lag(), *saving);
  return true;
}

void stop_beside(RunRank& rank) {
  EndOfRun& end = rank.end;
  // Its team may know before it does.
  while (!end.look() && !(rank.keeps() && end.last_save())) rank.mailbox->pause(0, "end of the run");
  if (end.has_come()) return;
  save_beside(rank, end.last_save()->step, end.last_save()->produced, Saving::due);
  while (!end.look()) rank.mailbox->pause(0, "end of the run");
}

}  // namespace temper
