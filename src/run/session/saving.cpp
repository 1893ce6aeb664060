#include "src/run/session/saving.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "src/config/load.h"
#include "src/core/log.h"
#include "src/core/process/local_parent.h"
#include "src/core/process/progress.h"
#include "src/io/hf/hf_export.h"
#include "src/models/parameter_specs.h"
#include "src/rl/registry.h"
#include "src/run/exchange/shared_weights.h"
#include "src/run/plan/run_options.h"
#include "src/run/roles/steps_ahead.h"
#include "src/run/session/older_weights.h"
#include "src/run/session/saved_file.h"
#include "src/run/session/start_line.h"

namespace temper {
namespace {

/// What a run that had these steps ahead would have generated with older weights, which are gone.
void tell_what_differs(const RunRank& rank) {
  const int64_t step = rank.resume.step, lag = rank.task.lag();
  const int64_t first = rank.resume.produced + 1, last = std::min(step + lag, rank.last_step());
  if (!rank.writes() || !rank.task.plan.generates || step == 0 || first > last || rank.resume.weights < step)
    return;
  log::warn(
      "the checkpoint holds no steps ahead beyond {}: steps {} to {} are generated with the weights after "
      "step "
      "{}, a run that was never ended would have taken those after step {} to {}; what follows differs from "
      "it",
      rank.resume.produced, first, last, step, std::max<int64_t>(0, first - 1 - lag), last - 1 - lag);
}

/// The model folder is the reference's, and what is not trained of an export.
void require_same_model(const RunRank& rank, const CheckpointReader& checkpoint) {
  const std::string now = rank.host->weights_digest(rank.config().model.path);
  if (now.empty() || !checkpoint.has_meta("model_digest") || checkpoint.text("model_digest") == now) return;
  std::string change = fmt::format("digest of the weights {} -> {}", checkpoint.text("model_digest"), now);
  for (const ConfigChange& key : changes_since(checkpoint, rank.task, rank.inputs))
    if (key.key == "model.path") change += fmt::format("; {} {} -> {}", key.key, key.before, key.after);
  if (!rank.config().checkpoint.accept_changes)
    fail(
        Exit::usage,
        {.what = "the weights of the model folder are not those that the run began with",
         .where = fmt::format("model.path = {} (checkpoint {})", rank.config().model.path, checkpoint.path()),
         .why = "changed since: " + change,
         .fix = "put them back, choose another run.name, set checkpoint.accept_changes = true, or start anew "
                "with checkpoint.resume = \"none\" and run.overwrite = true"});
  if (rank.writes()) log::warn("changed since: {}", change);
  if (rank.folder)
    rank.folder->events().write(
        "changed",
        {{"key", "digest of the weights"}, {"before", checkpoint.text("model_digest")}, {"after", now}});
}

void restore(RunRank& rank) {
  rank.groups.start(rank.resume.step, rank.resume.produced);
  rank.weights.start(rank.resume.step);
  if (rank.resume.checkpoint.empty()) return;
  rank.end.set_trained(rank.resume.step);
  const CheckpointReader checkpoint(rank.resume.checkpoint);
  require_same_model(rank, checkpoint);
  std::span<const std::unique_ptr<Role>> roles(rank.roles);
  Role* const rollout = rank.generates() ? roles.front().get() : nullptr;
  if (rollout) {
    rollout->restore(checkpoint);
    roles = roles.subspan(1);
  }
  if (rank.trains() || rank.placement.learns()) put_back_steps(checkpoint, rank.task.plan, rank.groups);
  if (rank.trains()) publish_older_weights(rank, checkpoint, rollout);
  for (const std::unique_ptr<Role>& role : roles) role->restore(checkpoint);
  if (rank.trains())
    log::info("resumed from {}, step {}{}", checkpoint.path(), rank.resume.step,
              rank.resume.step >= rank.last_step() ? ": nothing is left to do" : "");
  if (rank.folder)
    rank.folder->events().write("resume", {{"step", rank.resume.step}, {"path", checkpoint.path()}});
  tell_what_differs(rank);
}

/// Saves by the clock take at most an eleventh of the time.
constexpr double kLeastPause = 10;

/// What is due after a step, whatever the clock says.
Saves due_after(const RunRank& rank, int64_t step) {
  const CheckpointConfig& c = rank.config().checkpoint;
  const bool last = step == rank.last_step(), due = last || (c.every > 0 && step % c.every == 0);
  return {due ? Saving::due : Saving::none, c.export_hf_every > 0 && (step % c.export_hf_every == 0 || last)};
}

KeepRules keep_rules(const RunRank& rank) { return {rank.config().checkpoint.keep, is_by_clock}; }

/// Where one checkpoint is kept, it is read back before those that it replaces go.
void remove_older(const RunRank& rank, int64_t step) {
  const std::string newest = join_path(rank.checkpoints, step_name(step));
  const bool alone = kept_checkpoints(rank.checkpoints, keep_rules(rank)).kept.size() == 1;
  const std::vector<Damage> damage = alone ? verify_checkpoint(newest) : std::vector<Damage>{};
  if (damage.empty()) return remove_old_checkpoints(rank.checkpoints, keep_rules(rank));
  log::error("checkpoint {} reads back damaged ({}: {}): the one before stays", newest, damage.front().file,
             damage.front().reason);
}

/// The last step of those ahead that is generated before a save. A checkpoint made with a larger lag may have
/// brought more.
int64_t last_produced(const RunRank& rank, int64_t ahead) {
  return std::max(std::min(ahead, rank.last_step()), rank.resume.produced);
}

void settle(RunRank& rank, int64_t produced) {
  for (const std::unique_ptr<Role>& role : rank.roles) role->settle(produced);
}

void add_state_of_roles(RunRank& rank, CheckpointWriter& checkpoint) {
  for (size_t i = 0; i < rank.roles.size(); ++i) {
    const std::vector<int>& ranks = rank.placement.roles[i].ranks;
    const auto own = std::lower_bound(ranks.begin(), ranks.end(), rank.mpi_rank) - ranks.begin();
    checkpoint.of_role(static_cast<int>(own), static_cast<int>(ranks.size()));
    rank.roles[i]->save(checkpoint);
  }
}

/// The state after a step and what was generated ahead of it, up to step `produced`.
void save_checkpoint(RunRank& rank, int64_t step, int64_t produced, Saving saving) {
  const Stopwatch watch;
  enter_phase(Phase::save, step);
  settle(rank, produced);
  const PhaseTimer timer(*rank.journal, "save_checkpoint");
  CheckpointWriter checkpoint(*rank.keepers);
  add_state_of_roles(rank, checkpoint);
  checkpoint.text("dtype", std::string(dtype_name(rank.policy->dtype())));
  // From wherever an export is started.
  checkpoint.text("model_path",
                  std::filesystem::absolute(rank.config().model.path).lexically_normal().string());
  if (const std::string digest = rank.host->weights_digest(rank.config().model.path); !digest.empty())
    checkpoint.text("model_digest", digest);
  checkpoint.text("config", dump_config(rank.task.loaded));
  checkpoint.text(kInputs, rank.inputs.text());
  save_older_weights(rank, checkpoint, step);
  if (rank.journal->said() < step) checkpoint.text(kUnsaid, rank.journal->unsaid());
  if (rank.task.replay()) checkpoint.text("replay", replayed_text(rank.task, step));
  if (saving == Saving::optional) checkpoint.count(kByClock, 1);
  rank.journal->sync();
  const SaveResult saved = checkpoint.write(rank.checkpoints, step, saving == Saving::optional);
  rank.since_save = {};
  rank.save_seconds = watch.seconds();
  if (!saved.defect.empty()) {
    if (rank.writes()) log::warn("no checkpoint by checkpoint.every_minutes: {}", saved.defect);
    return;
  }
  log::info("saved {}", join_path(rank.checkpoints, step_name(step)));
  if (rank.folder) {
    const std::string path = join_path(rank.checkpoints, step_name(step));
    rank.folder->events().write("checkpoint", {{"step", step}, {"path", path}});
    tell_saved(step, path);
  }
  if (rank.writes()) remove_older(rank, step);
}

std::string export_folder(const RunRank& rank, int64_t step) {
  return rank.folder->path("export/" + step_name(step));
}

void export_step(RunRank& rank, int64_t step) {
  enter_phase(Phase::exported, step);
  const PhaseTimer timer(*rank.journal, "export_hf");
  const ParameterStore& weights = rank.policy->parameters();
  const auto write = [&](const ElementReader& read) {
    const std::string out = export_folder(rank, step);
    if (path_exists(out)) remove_tree(out);
    make_directories(rank.folder->path("export"));
    export_model(rank.config().model.path, parameter_specs(rank.policy->config()), read, out, {});
    tell_what_changed(rank.inputs, rank.config().model.path);
    log::info("exported {}", out);
    rank.folder->events().write("export", {{"step", step}, {"path", out}});
  };
  Comm& model = rank.meshes.trainer().control(kModel);
  const bool shared = model.size() > 1;
  if (rank.writes() && !shared) write(store_reader(weights));
  if (shared && rank.meshes.trainer().tensors(kReplicas).rank() == 0)
    read_shared({model, rank.task.plan.trainer().holders_of_one()}, weights, weights.flat_values(), write);
  rank.trainers->barrier("export written by the first trainer rank");
}

/// A step leaves its export after its checkpoint: a run that ended in between owes it.
void export_what_is_owed(RunRank& rank) {
  const int64_t step = rank.resume.step;
  if (step == 0 || !due_after(rank, step).exported) return;
  const bool owed = rank.writes() && !path_exists(export_folder(rank, step));
  if (rank.trainers->all_reduce_max(owed ? 1.0 : 0.0, "export that is owed, max over trainer ranks") > 0)
    export_step(rank, step);
}

/// "; tensors over tp, dp by NCCL", where GPUs exchange any.
std::string carriers(RunRank& rank) {
  std::map<std::string, std::string> names_by;  // carrier
  const Mesh& mesh = rank.meshes.trainer();
  for (const AxisRow& row : kAxes)
    for (const AxisSet axes : kTensorGroups)
      if (rank.device == Device::cuda && mesh.grid().wide(axes).has(row.axis)) {
        std::string& names = names_by[mesh.tensors(axes).carrier()];
        if (names.find(row.name) == std::string::npos)
          names += (names.empty() ? "" : ", ") + std::string(row.name);
      }
  std::string text;
  for (const auto& [carrier, names] : names_by)
    text += fmt::format("; tensors over {} by {}", names, carrier);
  if (const size_t readers = rank.weights.num_readers(); readers > 0)
    text += fmt::format("; weights read out of this GPU's memory by {} ranks", readers);
  return text;
}

}  // namespace

void start_run(RunRank& rank) {
  enter_phase(Phase::load);
  rank.connect_weights();
  restore(rank);
  if (!rank.trains()) return;
  if (rank.folder) {
    const bool writes_all = rank.task.plan.generates && rank.config().rollout.dump_every == 1;
    prepare_folder(*rank.folder, rank.found, rank.resume.step, rank.journal->said(), writes_all);
    if (rank.found == RunStart::Finds::own) remove_old_checkpoints(rank.checkpoints, keep_rules(rank));
    rank.folder->keep_config(dump_config(rank.task.loaded));
  }
  rank.trainers->barrier("run folder prepared by the first trainer rank");
  export_what_is_owed(rank);
  if (rank.folder) rank.journal->open(*rank.folder, run_prompt_frame(rank));
  const RunPlan& plan = rank.task.plan;
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  const std::string digest = rank.host->weights_digest(rank.config().model.path);
  log::info("{0}{5}\n  {1} updates in all; {2}{3}{4}", start_text(rank), plan.batch.updates_total,
               make_algorithm(rank.config().algorithm)->describe(),
               digest.empty() ? "" : "; weights of digest " + digest, carriers(rank),
                has_local_parent() ? "; Ctrl-C saves and stops"
                : by_mpirun        ? "; kill -USR1 of mpirun saves and stops, Ctrl-C does not save"
                                   : "");
  if (rank.folder) rank.folder->events().write("start", start_event(rank));
  const std::string changed = changed_sampling_text(rank.config().rollout);
  if (plan.generates && !rank.task.replay() && !changed.empty()) log::warn("{}", changed);
  if (!rank.task.replay())
    for (const std::string& text : plan.idle_keys) log::warn("{}", text);
  const auto eos = rank.text.tokenizer ? rank.text.tokenizer->eos_id() : std::nullopt;
  if (const std::string lost = lost_end_tokens_text(rank.policy->config(), eos); !lost.empty())
    log::warn("{}", lost);
}

void decide_saves(RunRank& rank, int64_t step) {
  rank.saves = due_after(rank, step);
  const double minutes = rank.config().checkpoint.every_minutes;
  if (minutes > 0 && rank.saves.checkpoint == Saving::none) {
    const bool now =
        rank.writes() && rank.since_save.seconds() >= std::max(60 * minutes, kLeastPause * rank.save_seconds);
    if (rank.trainers->all_reduce_max(now ? 1.0 : 0.0, "save by the clock, as the first trainer rank says") >
        0)
      rank.saves.checkpoint = Saving::optional;
  }
  rank.end.tell_trained(step, rank.saves.checkpoint);
}

void save_step(RunRank& rank, int64_t step) {
  const TraceSpan span(rank.trace, step, "trainer", "checkpoint and export");
  const Saves saves = std::exchange(rank.saves, {});
  if (saves.checkpoint != Saving::none)
    save_checkpoint(rank, step, last_produced(rank, step + rank.task.lag()), saves.checkpoint);
  if (saves.exported) export_step(rank, step);
}

void save_stopped(RunRank& rank, int64_t step) {
  const TraceSpan span(rank.trace, step, "trainer", "checkpoint of a stopped run");
  // With the weights of this step, if they went out and it was left behind, one more is generated; a replay
  // reads it again.
  const bool one_more = rank.weights.version() == step && !rank.task.replay() && rank.journal->said() == step;
  const int64_t produced = last_produced(rank, step + rank.task.lag() + (one_more ? 1 : 0));
  // Others that have state know of the save that is due.
  if (std::exchange(rank.saves, {}).checkpoint == Saving::none)
    rank.end.tell_last_save({step, produced, rank.weights.version()});
  save_checkpoint(rank, step, produced, Saving::due);
}

void save_beside(RunRank& rank, int64_t step, int64_t produced, Saving saving) {
  enter_phase(Phase::save, step);
  settle(rank, last_produced(rank, produced));
  CheckpointWriter checkpoint(*rank.keepers);
  add_state_of_roles(rank, checkpoint);
  checkpoint.write(rank.checkpoints, step, saving == Saving::optional);
}

}  // namespace temper
