#include "src/run/session/start/run_start.h"

#include <algorithm>

#include "src/config/load.h"
#include "src/core/file.h"
#include "src/core/log.h"
#include "src/run/session/start/find_checkpoint.h"

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

bool same_weights_of_files(const std::vector<DataSource>& a, const std::vector<DataSource>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const DataSource& x, const DataSource& y) { return x.weight == y.weight; });
}

/// What is known to be the same behind another path; empty: nothing.
std::string same_behind(const std::string& key, const CheckpointReader& checkpoint, const Config& before,
                        const Config& after, const InputDigests& inputs) {
  const InputDigests old = digests_in(checkpoint, kInputs);
  constexpr const char* kContent = "the same content";
  if (key == "data.train")
    return same_content(old, inputs, key) && same_weights_of_files(before.data.train, after.data.train)
               ? kContent
               : "";
  if (key == "tokenizer.path") return same_content(old, inputs, key) ? kContent : "";
  if (key == "tokenizer.chat_template")
    return same_content(old, inputs, "tokenizer.path", "chat_template.jinja") ? kContent : "";
  if (key == kReplay) return same_content(old, inputs, key) ? kContent : "";
  if (!leads_to_model(key) || !same_content(old, inputs, key)) return "";
  const bool of_policy = key == "model.path";
  if (of_policy && after.model.init == "random") return kContent;
  return checkpoint.has_meta(of_policy ? "model_digest" : kOwnWeights)
             ? "the same config.json; its weights are compared when loaded"
             : "";
}

void accept_changes(const CheckpointReader& checkpoint, const RunTask& task, const RunFolder& folder,
                    const InputDigests& inputs) {
  std::string grave, keys;
  const std::vector<ConfigChange> changes = changes_since(checkpoint, task, inputs);
  for (const ConfigChange& change : changes) {
    if (!change.grave()) continue;
    if (!keys.ends_with(change.key)) keys += (keys.empty() ? "" : ", ") + change.key;
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
    log::warn("changed since: {}", change.text());
    folder.events().write("changed",
                          {{"key", change.key}, {"before", change.before}, {"after", change.after}});
  }
}

bool resumes_path(const std::string& resume) { return resume != "auto" && resume != "none"; }

/// A run that this very command began (run.overwrite was heeded then) and did not finish.
bool began_it(const std::string& checkpoint, const RunTask& task, const InputDigests& inputs) {
  if (checkpoint.empty()) return false;
  const CheckpointReader reader(checkpoint);
  return reader.step() < task.last_step() && changes_since(reader, task, inputs).empty();
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
RunStart find_for_replay(const RunTask& task, const RunFolder& folder, const InputDigests& inputs) {
  using Finds = RunStart::Finds;
  const std::string checkpoints = folder.path("checkpoints");
  const std::string own = newest_sound_checkpoint(checkpoints);
  const bool its_own = !own.empty() && CheckpointReader(own).has_meta("replay");
  if (task.config().run.overwrite)
    return began_it(own, task, inputs) ? RunStart{Finds::own, own} : RunStart{Finds::replaced, ""};
  if (its_own) return {Finds::own, own};
  if (!list_checkpoints(checkpoints).empty())
    fail(Exit::usage, {.what = "the run folder holds a run with checkpoints",
                       .where = folder.path(""),
                       .why = "a replay starts at step 1 and would remove them",
                       .fix = "choose another run.name for the replay, or set run.overwrite = true"});
  return {};
}

RunStart find(const RunTask& task, const RunFolder& folder, const InputDigests& inputs) {
  using Finds = RunStart::Finds;
  const std::string& resume = task.config().checkpoint.resume;
  const std::string checkpoints = folder.path("checkpoints");
  const bool overwrite = task.config().run.overwrite;
  if (task.replay()) return find_for_replay(task, folder, inputs);
  if (resume == "none" && folder.has_run() && !overwrite)
    fail(Exit::usage,
         {.what = "the run folder holds a run",
          .where = folder.path(""),
          .why = "checkpoint.resume = \"none\" would write over it",
          .fix = "choose another run.name, set run.overwrite = true, or checkpoint.resume = \"auto\""});
  const std::string own = newest_sound_checkpoint(checkpoints, resumes_path(resume) ? resume : "");
  if (resume == "none")
    return began_it(own, task, inputs) ? RunStart{Finds::own, own}
                                       : RunStart{folder.has_run() ? Finds::replaced : Finds::nothing, ""};
  if (!own.empty()) {
    if (resumes_path(resume))
      log::info("checkpoint.resume = {} is not needed: the run has checkpoints of its own", resume);
    return {Finds::own, own};
  }
  if (!list_checkpoints(checkpoints).empty()) fail_unsound(checkpoints);
  if (!resumes_path(resume)) return {};
  const std::string named = resolve_checkpoint(resume);
  require_sound(named, Numbers::finite);
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
    log::warn("{} cannot be read: {}", file, e.problem().why);
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

InputDigests inputs_up_to(int64_t step, InputDigests inputs) {
  inputs.keep_first(kReplay, step);
  return inputs;
}

InputDigests digests_in(const CheckpointReader& checkpoint, const char* meta_key) {
  if (!checkpoint.has_meta(meta_key)) return {};
  return InputDigests::from_text(checkpoint.text(meta_key),
                                 fmt::format("{}: meta.{}", checkpoint.path(), meta_key));
}

std::vector<ConfigChange> changes_since(const CheckpointReader& checkpoint, const RunTask& task,
                                        const InputDigests& all_inputs) {
  const InputDigests inputs = inputs_up_to(checkpoint.step(), all_inputs);
  const Config before = config_of(checkpoint, task.config().roles.rows());
  std::vector<ConfigChange> changes = config_changes(before, task.config());
  const std::string replayed = checkpoint.has_meta("replay") ? checkpoint.text("replay") : "none",
                    now = task.replay() ? replayed_text(task, checkpoint.step()) : "none";
  if (replayed != now) changes.push_back({kReplay, replayed, now});
  for (ConfigChange& change : changes)
    change.same = same_behind(change.key, checkpoint, before, task.config(), inputs);
  for (ConfigChange& change : changed_content(digests_in(checkpoint, kInputs), inputs))
    changes.push_back(std::move(change));
  return changes;
}

RunStart find_run_start(const RunTask& task, const RunFolder& folder, const InputDigests& inputs) {
  RunStart start = find(task, folder, inputs);
  if (start.checkpoint.empty()) return start;
  const CheckpointReader checkpoint(start.checkpoint);
  require_same_dtype(checkpoint, task.plan.dtype);
  accept_changes(checkpoint, task, folder, inputs);
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
