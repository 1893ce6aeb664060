#include "src/run/session/run_files.h"

#include <cstdlib>
#include <utility>

#include "src/core/log.h"
#include "src/run/plan/run_options.h"
#include "src/run/record/run_log.h"
#include "src/run/session/older_weights.h"

namespace temper {

RunFiles::RunFiles(const RunTask& task, const Placement& placement, const RunInputs& inputs, RunLinks& links)
    : root(join_path(task.config().run.dir, task.config().run.name)),
      checkpoints(join_path(root, "checkpoints")) {
  Comm& world = *links.world;
  if (links.writes()) {
    folder = std::make_unique<RunFolder>(task.config().run.dir, task.config().run.name);
    make_directories(folder->path("logs"));
  }
  world.barrier("run folder opened by the first trainer rank");
  start_log(rank_log_file(root, world.rank()), task.config().log.level, world.rank(), links.writes());
  const std::string found_here = folder ? find_checkpoint(task, inputs) : "";
  const std::string path =
      world.broadcast(found_here, placement.ranks.trainer.front(), "checkpoint to resume from");
  if (path.empty()) {
    if (task.config().validation.at_start && task.validates()) resume.unsaid = "{}";
    return;
  }
  take_up(path, task.replay());
  if (!rewards_need_helpers(task.config())) return;
  if (placement.has(Duty::produces) && inputs.rewards) remember_verdicts(inputs);
  world.barrier("verdicts of reward programs read by all ranks");
}

std::string RunFiles::find_checkpoint(const RunTask& task, const RunInputs& inputs) {
  const RunStart start = find_run_start(task, *folder, inputs.digests);
  found = start.finds;
  return start.checkpoint;
}

void RunFiles::take_up(const std::string& path, bool replay) {
  const CheckpointReader reader(path);
  resume = {path, reader.step(), reader.step(), reader.step()};
  if (reader.has_meta(kUnsaid)) resume.unsaid = reader.text(kUnsaid);
  const bool own = path == checkpoint(reader.step());
  if (own && reader.has_meta(kStandings)) resume.standings = reader.text(kStandings);
  if (!replay) resume.weights = oldest_weights(reader);
  while (reader.has(ahead_name(resume.produced + 1))) ++resume.produced;
}

/// Reads the verdicts of the steps that are made again, before their files are removed. What a file does not
/// give is asked for again.
void RunFiles::remember_verdicts(const RunInputs& inputs) const {
  const std::string rollouts = join_path(root, "rollouts");
  const size_t number = std::string_view("step-").size();
  if (!is_directory(rollouts)) return;
  for (const std::string& name : list_directory(rollouts)) {
    if (name.size() <= number || std::atoll(name.c_str() + number) <= resume.produced) continue;
    try {
      inputs.rewards->remember(join_path(rollouts, name));
    } catch (const Error& e) {
      log::warn("verdicts of {} cannot be read: {}", join_path(rollouts, name), e.problem().why);
    }
  }
}

}  // namespace temper
