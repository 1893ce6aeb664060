#include "src/run/session/beside_trainer.h"

namespace temper {
namespace {

void learn(RunSteps& run, int64_t step) {
  RunRank& rank = run.rank;
  for (size_t i = 0; i < rank.roles.size(); ++i) {
    if (!rank.placement.roles[i].learns()) continue;
    rank.roles[i]->learn(step, rank.links.groups.peek(step));
    rank.lend_memory();
  }
}

}  // namespace

void close_training(RunSteps& run, int64_t step) {
  run.saver.decide(step);
  learn(run, step);
}

bool follow_trainer(RunSteps& run, int64_t step) {
  RunRank& rank = run.rank;
  if (rank.trains() || !rank.links.keeps() || step <= rank.files.resume.step) return true;
  const std::optional<Saving> saving = rank.links.end.wait_trained(step);
  if (!saving) return false;
  learn(run, step);
  if (rank.placement.learns()) rank.links.groups.finish(step);
  if (*saving != Saving::none) run.saver.save_beside(step, step + rank.task.lag(), *saving);
  return true;
}

}  // namespace temper
