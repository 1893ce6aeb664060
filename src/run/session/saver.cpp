#include "src/run/session/saver.h"

#include <algorithm>
#include <filesystem>

#include "src/config/load.h"
#include "src/core/log.h"
#include "src/core/process/progress.h"
#include "src/io/hf/peft_folder.h"
#include "src/run/session/exporting.h"
#include "src/run/session/older_weights.h"
#include "src/run/session/saved_file.h"
#include "src/run/session/start/find_checkpoint.h"

namespace temper {
namespace {

/// Saves by the clock take at most an eleventh of the time.
constexpr double kLeastPause = 10;

/// What is due after a step, whatever the clock says.
Saves due_after(const RunTask& task, int64_t step, bool ends) {
  if (task.rollouts_only) return {};
  const int64_t every = task.config().checkpoint.every;
  const bool due = step == task.last_step() || (every > 0 && step % every == 0) || ends;
  return {due ? Saving::due : Saving::none, export_is_due(task, step, ends)};
}

/// What is wrong with a checkpoint that was saved just now.
std::vector<Damage> read_back(const std::string& checkpoint) {
  try {
    return verify_checkpoint(checkpoint);
  } catch (const Error&) {
    if (path_exists(join_path(checkpoint, kManifestName))) throw;
    fail(Exit::storage, {.what = "a checkpoint is gone that was saved just now",
                         .where = checkpoint,
                         .why = "its folder was moved or removed under the run",
                         .fix = "start the same command again, where the folder is or with another run.dir"});
  }
}

/// Where one checkpoint is kept, it is read back before those that it replaces go.
void remove_older(const std::string& checkpoints, const std::string& newest, const KeepRules& rules) {
  const bool alone = kept_checkpoints(checkpoints, rules).kept.size() == 1;
  const std::vector<Damage> damage = alone ? read_back(newest) : std::vector<Damage>{};
  if (damage.empty()) return remove_old_checkpoints(checkpoints, rules);
  log::error("checkpoint {} reads back damaged ({}: {}): the one before stays", newest, damage.front().file,
             damage.front().reason);
}

/// So that it leads there from wherever the checkpoint is used.
void add_path(CheckpointWriter& checkpoint, const char* key, const std::string& path) {
  checkpoint.text(key, std::filesystem::absolute(path).lexically_normal().string());
}

}  // namespace

KeepRules keep_rules(const Config& config, const Standings& standings) {
  KeepRules rules{config.checkpoint.keep, is_extra};
  for (const Standings::Best& best : standings.best()) rules.stay.insert(best.step);
  return rules;
}

void Saver::look_at_validation(int64_t step) {
  const Standings::News news = rank_.standings.look(step, rank_.journal->values());
  if (news.displaced) remove_export(rank_, *news.displaced);
  if (!news.best) return;
  const std::string& metric = rank_.config().checkpoint.best.metric;
  if (rank_.writes())
    log::info("step {} is {}: {} = {}", step,
              rank_.standings.best().front().step == step ? "the best" : "among the best", metric,
              *news.best);
  rank_.files.write_event("best", {{"step", step}, {"metric", metric}, {"value", *news.best}});
}

void Saver::decide_late(int64_t step) {
  look_at_validation(step);
  const bool due =
      export_is_due(rank_.task, step, rank_.standings.reached()) || rank_.standings.is_best(step);
  due_.exported = due && !export_is_due(rank_.task, step, /*ends=*/false);  // that was made at the start
}

void Saver::decide(int64_t step) {
  look_at_validation(step);
  due_ = due_after(rank_.task, step, rank_.standings.reached());
  if (rank_.standings.is_best(step)) {
    due_.for_best = due_.checkpoint == Saving::none;
    due_.checkpoint = Saving::due;
    due_.exported = true;
  }
  const double minutes = rank_.task.rollouts_only ? 0 : rank_.config().checkpoint.every_minutes;
  if (minutes > 0 && due_.checkpoint == Saving::none) {
    const bool now =
        rank_.writes() && since_save_.seconds() >= std::max(60 * minutes, kLeastPause * save_seconds_);
    if (rank_.links.trainers->all_reduce_max(now ? 1.0 : 0.0,
                                             "save by the clock, as the first trainer rank says") > 0)
      due_.checkpoint = Saving::optional;
  }
  rank_.links.end.tell_trained(step, due_.checkpoint);
}

void Saver::save_step(int64_t step) {
  const TraceSpan span(rank_.trace, step, "trainer", "checkpoint and export");
  const Saves saves = std::exchange(due_, {});
  if (saves.checkpoint != Saving::none) save_checkpoint(step, last_produced(step + rank_.task.lag()), saves);
  if (saves.exported) export_step(rank_, step);
}

void Saver::save_stopped(int64_t step) {
  const TraceSpan span(rank_.trace, step, "trainer", "checkpoint of a stopped run");
  // With the weights of this step, if they went out and it was left behind, one more is generated; a replay
  // reads it again. A run that ends at its goal leaves none behind, whatever went out when it was resumed.
  const int64_t version = rank_.links.weights.version();
  const bool left = version == step && rank_.journal->said() == step;
  const bool one_more = left && !rank_.task.replay() && !rank_.standings.reached();
  const int64_t produced = last_produced(step + rank_.task.lag() + (one_more ? 1 : 0));
  // Others that have state know of the save that is due.
  const Saves saves = std::exchange(due_, {});
  if (saves.checkpoint == Saving::none) rank_.links.end.tell_last_save({step, produced, version});
  save_checkpoint(step, produced, {.checkpoint = Saving::due});
  if (saves.exported && rank_.standings.reached()) export_step(rank_, step);
}

void Saver::save_beside(int64_t step, int64_t produced, Saving saving) {
  enter_phase(Phase::save, step);
  settle(last_produced(produced));
  CheckpointWriter checkpoint(*rank_.links.keepers);
  add_state_of_roles(checkpoint);
  checkpoint.write(rank_.files.checkpoints, step, saving == Saving::optional);
}

/// The last step of those ahead that is generated before a save. A checkpoint made with a larger lag may have
/// brought more.
int64_t Saver::last_produced(int64_t ahead) const {
  return std::max(std::min(ahead, rank_.last_step()), rank_.files.resume.produced);
}

void Saver::settle(int64_t produced) {
  for (const std::unique_ptr<Role>& role : rank_.roles) role->settle(produced);
}

void Saver::add_state_of_roles(CheckpointWriter& checkpoint) const {
  for (size_t i = 0; i < rank_.roles.size(); ++i) {
    const std::vector<int>& ranks = rank_.placement.roles[i].ranks;
    const auto own = std::lower_bound(ranks.begin(), ranks.end(), rank_.mpi_rank) - ranks.begin();
    checkpoint.of_role(static_cast<int>(own), static_cast<int>(ranks.size()));
    rank_.roles[i]->save(checkpoint);
  }
}

/// What the run was made of, and what of the step is not told yet.
void Saver::add_origin(CheckpointWriter& checkpoint, int64_t step) const {
  checkpoint.text("dtype", std::string(dtype_name(rank_.policy->dtype())));
  const Config& config = rank_.config();
  add_path(checkpoint, "model_path", config.model.path);
  if (config.tokenizer.path) add_path(checkpoint, kTokenizerPath, *config.tokenizer.path);
  if (config.tokenizer.chat_template) add_path(checkpoint, kTemplatePath, *config.tokenizer.chat_template);
  if (const std::string digest = rank_.weights_digest(); !digest.empty())
    checkpoint.text("model_digest", digest);
  checkpoint.text("config", dump_config(rank_.task.loaded));
  if (const AdapterConfig& adapters = rank_.task.plan.adapters; adapters.on())
    checkpoint.text(kAdapters, adapter_config_json(adapters, config.model.path).dump());
  if (const auto& allowed = rank_.config().model.allow_unused; !allowed.empty())
    checkpoint.text(kAllowUnused, Json(allowed).dump());
  checkpoint.text(kInputs, inputs_up_to(step, rank_.inputs.digests).text());
  if (!rank_.own_weights.files().empty()) checkpoint.text(kOwnWeights, rank_.own_weights.text());
  if (!config.checkpoint.best.metric.empty() || !config.run.stop_when.metric.empty())
    checkpoint.text(kStandings, rank_.standings.text());
  if (rank_.journal->said() < step) checkpoint.text(kUnsaid, rank_.journal->unsaid());
  if (rank_.task.replay()) checkpoint.text("replay", replayed_text(rank_.task, step));
}

/// The state after a step and what was generated ahead of it, up to step `produced`.
void Saver::save_checkpoint(int64_t step, int64_t produced, const Saves& saves) {
  const bool optional = saves.checkpoint == Saving::optional;
  const Stopwatch watch;
  enter_phase(Phase::save, step);
  settle(produced);
  const PhaseTimer timer(*rank_.journal, "save_checkpoint");
  CheckpointWriter checkpoint(*rank_.links.keepers);
  add_state_of_roles(checkpoint);
  add_origin(checkpoint, step);
  if (rank_.placement.ranks.generate_apart())
    save_older_weights(rank_.links, rank_.policy->parameters(), checkpoint,
                       {step, std::min(step + rank_.task.lag(), rank_.last_step()), rank_.task.lag()});
  if (optional) checkpoint.count(kByClock, 1);
  if (saves.for_best) checkpoint.count(kForBest, 1);
  rank_.journal->sync();
  const SaveResult saved = checkpoint.write(rank_.files.checkpoints, step, optional);
  since_save_ = {};
  save_seconds_ = watch.seconds();
  if (saved.defect.empty()) return tell_saved_step(step);
  if (rank_.writes()) log::warn("no checkpoint by checkpoint.every_minutes: {}", saved.defect);
}

void Saver::tell_saved_step(int64_t step) const {
  const std::string path = rank_.files.checkpoint(step);
  log::info("saved {}", path);
  rank_.files.write_event("checkpoint", {{"step", step}, {"path", path}});
  if (!rank_.writes()) return;
  tell_saved(step, path);
  remove_older(rank_.files.checkpoints, path, keep_rules(rank_.config(), rank_.standings));
}

}  // namespace temper
