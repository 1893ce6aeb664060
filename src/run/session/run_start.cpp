#include "src/run/session/run_start.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "src/config/changes.h"
#include "src/config/load.h"
#include "src/core/file.h"
#include "src/run/session/find_checkpoint.h"

namespace temper {
namespace {

/// The config of the run that wrote the checkpoint.
Config config_of(const CheckpointReader& checkpoint, std::span<const RoleTraits> roles) {
  const std::string where = checkpoint.path() + ": meta.config";
  try {
    return read_dumped_config(checkpoint.text("config"), where, roles);
  } catch (const Error& e) {
    fail(Exit::data, {.what = "the config in a checkpoint cannot be read",
                      .where = where,
                      .why = e.problem().why,
                      .fix = "use another checkpoint"});
  }
}

void require_same_dtype(const CheckpointReader& checkpoint, DType dtype) {
  const std::string theirs = checkpoint.text("dtype");
  if (theirs == dtype_name(dtype)) return;
  fail(Exit::usage, {.what = "the checkpoint was made with another dtype",
                     .where = checkpoint.path(),
                     .why = fmt::format("it has {}, the run {}", theirs, dtype_name(dtype)),
                     .fix = "set run.dtype = \"" + theirs + "\""});
}

/// What changed since the checkpoint: keys of the config, and the files of a replay.
std::vector<ConfigChange> changes_since(const CheckpointReader& checkpoint, const RunTask& task) {
  std::vector<ConfigChange> changes =
      config_changes(config_of(checkpoint, task.config().roles.rows()), task.config());
  const std::string before = checkpoint.has_meta("replay") ? checkpoint.text("replay") : "none",
                    now = task.replay() ? replayed_text(task, checkpoint.step()) : "none";
  if (before != now) changes.push_back({"--replay", before, now});
  return changes;
}

void accept_changes(const CheckpointReader& checkpoint, const RunTask& task, const RunFolder& folder) {
  std::string grave, keys;
  const std::vector<ConfigChange> changes = changes_since(checkpoint, task);
  for (const ConfigChange& change : changes) {
    if (!change.grave()) continue;
    keys += (keys.empty() ? "" : ", ") + change.key;
    grave += (grave.empty() ? "" : "; ") + change.text();
  }
  if (!grave.empty() && !task.config().checkpoint.accept_changes)
    fail(
        Exit::usage,
        {.what = "this would be another run than the one that its checkpoint began",
         .where = fmt::format("{} (checkpoint {})", keys, checkpoint.path()),
         .why = "changed since: " + grave,
         .fix = "choose another run.name; go on all the same with checkpoint.accept_changes = true; or start "
                "anew with checkpoint.resume = \"none\" and run.overwrite = true"});
  for (const ConfigChange& change : changes) {
    spdlog::warn("changed since: {}", change.text());
    folder.events().write("changed",
                          {{"key", change.key}, {"before", change.before}, {"after", change.after}});
  }
}

bool resumes_path(const std::string& resume) { return resume != "auto" && resume != "none"; }

/// A run that this very command began (run.overwrite was heeded then) and did not finish.
bool began_it(const std::string& checkpoint, const RunTask& task) {
  if (checkpoint.empty()) return false;
  const CheckpointReader reader(checkpoint);
  return reader.step() < task.last_step() && changes_since(reader, task).empty();
}

[[noreturn]] void fail_unsound(const std::string& folder) {
  fail(Exit::data,
       {.what = "no checkpoint of this run can be used",
        .where = folder,
        .why = fmt::format("{} found, none is sound; the log says why", list_checkpoints(folder).size()),
        .fix = "choose another run.name, or start anew with checkpoint.resume = \"none\" and "
               "run.overwrite = true"});
}

/// A replay goes on with itself alone; checkpoint.resume is not looked at.
RunStart find_for_replay(const RunTask& task, const RunFolder& folder) {
  using Finds = RunStart::Finds;
  const std::string checkpoints = folder.path("checkpoints");
  const std::string own = newest_sound_checkpoint(checkpoints);
  const bool its_own = !own.empty() && CheckpointReader(own).has_meta("replay");
  if (task.config().run.overwrite)
    return began_it(own, task) ? RunStart{Finds::own, own} : RunStart{Finds::replaced, ""};
  if (its_own) return {Finds::own, own};
  if (!list_checkpoints(checkpoints).empty())
    fail(Exit::usage, {.what = "the run folder holds a run with checkpoints",
                       .where = folder.path(""),
                       .why = "a replay starts at step 1 and would remove them",
                       .fix = "choose another run.name for the replay, or set run.overwrite = true"});
  return {};
}

RunStart find(const RunTask& task, const RunFolder& folder) {
  using Finds = RunStart::Finds;
  const std::string& resume = task.config().checkpoint.resume;
  const std::string checkpoints = folder.path("checkpoints");
  const bool overwrite = task.config().run.overwrite;
  if (task.replay()) return find_for_replay(task, folder);
  if (resume == "none" && folder.has_run() && !overwrite)
    fail(Exit::usage,
         {.what = "the run folder holds a run",
          .where = folder.path(""),
          .why = "checkpoint.resume = \"none\" would write over it",
          .fix = "choose another run.name, set run.overwrite = true, or checkpoint.resume = \"auto\""});
  const std::string own = newest_sound_checkpoint(checkpoints, resumes_path(resume) ? resume : "");
  if (resume == "none")
    return began_it(own, task) ? RunStart{Finds::own, own}
                               : RunStart{folder.has_run() ? Finds::replaced : Finds::nothing, ""};
  if (!own.empty()) {
    if (resumes_path(resume))
      spdlog::info("checkpoint.resume = {} is not needed: the run has checkpoints of its own", resume);
    return {Finds::own, own};
  }
  if (!list_checkpoints(checkpoints).empty()) fail_unsound(checkpoints);
  if (!resumes_path(resume)) return {};
  const std::string named = resolve_checkpoint(resume);
  require_sound(named);
  return {Finds::foreign, named};
}

/// The config of the first start; nothing where it cannot be read.
std::optional<Config> first_config(const RunFolder& folder) {
  const std::string first = folder.path("config-1.toml"), newest = folder.path("config.toml");
  const std::string file = path_exists(first) ? first : newest;
  if (!path_exists(file)) return std::nullopt;
  try {
    return read_dumped_config(read_file(file, int64_t{16} << 20), file);
  } catch (const Error& e) {
    spdlog::warn("{} cannot be read: {}", file, e.problem().why);
    return std::nullopt;
  }
}

/// The first of the steps whose files should be here: a run may have begun at another one's checkpoint. The
/// config of its first start says so, and the first line of its metrics the step.
int64_t first_step(const RunFolder& folder) {
  const std::optional<Config> first = first_config(folder);
  return first && resumes_path(first->checkpoint.resume) ? folder.first_line().value_or(1) : 1;
}

}  // namespace

std::string replayed_text(const RunTask& task, int64_t step) {
  std::string text;
  for (int64_t s = 0; s < std::min(step, task.last_step()); ++s)
    text += (s > 0 ? " " : "") + task.replay_files[static_cast<size_t>(s)];
  return text;
}

RunStart find_run_start(const RunTask& task, const RunFolder& folder) {
  RunStart start = find(task, folder);
  if (start.checkpoint.empty()) return start;
  const CheckpointReader checkpoint(start.checkpoint);
  require_same_dtype(checkpoint, task.plan.dtype);
  accept_changes(checkpoint, task, folder);
  return start;
}

void prepare_folder(RunFolder& folder, RunStart::Finds finds, int64_t step, int64_t said, bool generates) {
  switch (finds) {
    case RunStart::Finds::own:
      folder.truncate_to(step, said);
      return folder.tell_what_is_missing(first_step(folder), said, generates);
    case RunStart::Finds::replaced:
      return folder.clear();
    case RunStart::Finds::nothing:
    case RunStart::Finds::foreign:
      return folder.set_aside();
  }
}

}  // namespace temper
