#include "src/run/session/saving.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "src/config/load.h"
#include "src/core/process/local_parent.h"
#include "src/core/process/progress.h"
#include "src/io/hf_export.h"
#include "src/models/parameter_specs.h"
#include "src/rl/registry.h"
#include "src/run/exchange/shared_weights.h"
#include "src/run/plan/run_options.h"
#include "src/run/session/older_weights.h"
#include "src/run/session/saved_file.h"

namespace temper {
namespace {

/// What a run that had these steps ahead would have generated with older weights, which are gone.
void tell_what_differs(const RunRank& rank) {
  const int64_t step = rank.resume.step, lag = rank.task.lag();
  const int64_t first = rank.resume.produced + 1, last = std::min(step + lag, rank.last_step());
  if (!rank.writes() || !rank.task.plan.generates || step == 0 || first > last || rank.resume.weights < step)
    return;
  spdlog::warn(
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
  const std::string change =
      fmt::format("digest of the weights {} -> {}", checkpoint.text("model_digest"), now);
  if (!rank.config().checkpoint.accept_changes)
    fail(
        Exit::usage,
        {.what = "the weights of the model folder are not those that the run began with",
         .where = fmt::format("model.path = {} (checkpoint {})", rank.config().model.path, checkpoint.path()),
         .why = "changed since: " + change,
         .fix = "put them back, choose another run.name, or set checkpoint.accept_changes = true"});
  if (rank.writes()) spdlog::warn("changed since: {}", change);
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
  if (rank.trains()) publish_older_weights(rank, checkpoint, rollout);
  for (const std::unique_ptr<Role>& role : roles) role->restore(checkpoint);
  if (rank.trains())
    spdlog::info("resumed from {}, step {}{}", checkpoint.path(), rank.resume.step,
                 rank.resume.step >= rank.last_step() ? ": nothing is left to do" : "");
  if (rank.folder)
    rank.folder->events().write("resume", {{"step", rank.resume.step}, {"path", checkpoint.path()}});
  tell_what_differs(rank);
}

/// Where one checkpoint is kept, it is read back before the one that it replaces goes.
void remove_older(const RunRank& rank, int64_t step) {
  const int64_t keep = rank.config().checkpoint.keep;
  const std::string newest = join_path(rank.checkpoints, step_name(step));
  const std::vector<Damage> damage = keep == 1 ? verify_checkpoint(newest) : std::vector<Damage>{};
  if (damage.empty()) return remove_old_checkpoints(rank.checkpoints, keep);
  spdlog::error("checkpoint {} reads back damaged ({}: {}): the one before stays", newest,
                damage.front().file, damage.front().reason);
}

/// The state after `step`, and all that was generated ahead of it, up to step `ahead`.
void save_checkpoint(RunRank& rank, int64_t step, int64_t ahead) {
  enter_phase(Phase::save, step);
  // A checkpoint made with a larger lag may have brought more.
  const int64_t produced = std::max(std::min(ahead, rank.last_step()), rank.resume.produced);
  for (const std::unique_ptr<Role>& role : rank.roles) role->settle(produced);
  const PhaseTimer timer(*rank.journal, "save_checkpoint");
  CheckpointWriter checkpoint(*rank.trainers);
  for (const std::unique_ptr<Role>& role : rank.roles) role->save(checkpoint);
  checkpoint.text("dtype", std::string(dtype_name(rank.policy->dtype())));
  // From wherever an export is started.
  checkpoint.text("model_path",
                  std::filesystem::absolute(rank.config().model.path).lexically_normal().string());
  if (const std::string digest = rank.host->weights_digest(rank.config().model.path); !digest.empty())
    checkpoint.text("model_digest", digest);
  checkpoint.text("config", dump_config(rank.task.loaded));
  save_older_weights(rank, checkpoint, step);
  if (rank.journal->said() < step) checkpoint.text(kUnsaid, rank.journal->unsaid());
  if (rank.task.replay()) checkpoint.text("replay", replayed_text(rank.task, step));
  rank.journal->sync();
  checkpoint.write(rank.checkpoints, step);
  spdlog::info("saved {}", join_path(rank.checkpoints, step_name(step)));
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
    spdlog::info("exported {}", out);
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
  if (step == 0 || !saves_after(rank, step).exported) return;
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
    if (rank.found == RunStart::Finds::own)
      remove_old_checkpoints(rank.checkpoints, rank.config().checkpoint.keep);
    rank.folder->keep_config(dump_config(rank.task.loaded));
  }
  rank.trainers->barrier("run folder prepared by the first trainer rank");
  export_what_is_owed(rank);
  if (rank.folder) rank.journal->open(*rank.folder);
  const RunPlan& plan = rank.task.plan;
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  const std::string digest = rank.host->weights_digest(rank.config().model.path);
  spdlog::info("{} parameters, {} ranks, {}, {}, {} updates in all; {}{}{}{}",
               rank.policy->parameters().num_parameters(), plan.num_ranks, rank.threads,
               dtype_name(plan.dtype), plan.batch.updates_total,
               make_algorithm(rank.config().algorithm)->describe(),
               digest.empty() ? "" : "; weights of digest " + digest, carriers(rank),
               has_local_parent() ? "; Ctrl-C saves and stops"
               : by_mpirun        ? "; kill -USR1 of mpirun saves and stops, Ctrl-C does not save"
                                  : "");
  if (rank.folder)
    rank.folder->events().write("start", {{"ranks", plan.num_ranks},
                                          {"dtype", dtype_name(plan.dtype)},
                                          {"parameters", rank.policy->parameters().num_parameters()},
                                          {"updates", plan.batch.updates_total}});
  const std::string changed = changed_sampling_text(rank.config().rollout);
  if (plan.generates && !rank.task.replay() && !changed.empty()) spdlog::warn("{}", changed);
  const auto eos = rank.text.tokenizer ? rank.text.tokenizer->eos_id() : std::nullopt;
  if (const std::string lost = lost_end_tokens_text(rank.policy->config(), eos); !lost.empty())
    spdlog::warn("{}", lost);
}

Saves saves_after(const RunRank& rank, int64_t step) {
  const CheckpointConfig& c = rank.config().checkpoint;
  const bool last = step == rank.last_step();
  return {last || (c.every > 0 && step % c.every == 0),
          c.export_hf_every > 0 && (step % c.export_hf_every == 0 || last)};
}

void save_step(RunRank& rank, int64_t step) {
  const TraceSpan span(rank.trace, step, "trainer", "checkpoint and export");
  const Saves saves = saves_after(rank, step);
  if (saves.checkpoint) save_checkpoint(rank, step, step + rank.task.lag());
  if (saves.exported) export_step(rank, step);
}

void save_stopped(RunRank& rank, int64_t step) {
  const TraceSpan span(rank.trace, step, "trainer", "checkpoint of a stopped run");
  // With the weights of this step, if they went out and it was left behind, one more is generated; a replay
  // reads it again.
  const bool one_more = rank.weights.version() == step && !rank.task.replay() && rank.journal->said() == step;
  save_checkpoint(rank, step, step + rank.task.lag() + (one_more ? 1 : 0));
}

}  // namespace temper
