#include "src/run/session/start/starting.h"

#include <algorithm>
#include <filesystem>

#include "src/config/load.h"
#include "src/core/log.h"
#include "src/core/process/progress.h"
#include "src/run/plan/run_options.h"
#include "src/run/roles/steps_ahead.h"
#include "src/run/session/exporting.h"
#include "src/run/session/older_weights.h"
#include "src/run/session/saver.h"
#include "src/run/session/start/start_line.h"

namespace temper {
namespace {

/// What a run that had these steps ahead would have generated with older weights, which are gone.
void tell_what_differs(const RunTask& task, const ResumePoint& resume) {
  const int64_t step = resume.step, lag = task.lag();
  const int64_t first = resume.produced + 1, last = std::min(step + lag, task.last_step());
  if (!task.plan.generates || step == 0 || first > last || resume.weights < step) return;
  log::warn(
      "the checkpoint holds no steps ahead beyond {}: steps {} to {} are generated with the weights after "
      "step {}, a run that was never ended would have taken those after step {} to {}; what follows differs "
      "from it",
      resume.produced, first, last, step, std::max<int64_t>(0, first - 1 - lag), last - 1 - lag);
}

/// Other weights than those that the run began with, in model folders that this rank knows of.
std::vector<ConfigChange> changed_weights(const CheckpointReader& checkpoint, const RunRank& rank) {
  std::vector<ConfigChange> changes = changed_content(digests_in(checkpoint, kOwnWeights), rank.own_weights);
  const std::string now = rank.weights_digest();
  const std::string before = checkpoint.has_meta("model_digest") ? checkpoint.text("model_digest") : "";
  if (!now.empty() && !before.empty() && now != before) changes.push_back({"model.path", before, now});
  return changes;
}

[[noreturn]] void refuse_weights(const std::string& where, const std::string& change) {
  fail(Exit::usage,
       {.what = "the weights of a model folder are not those that the run began with",
        .where = where,
        .why = "changed since: " + change,
        .fix = "put them back, choose another run.name, set checkpoint.accept_changes = true, or start "
               "anew with checkpoint.resume = \"none\" and run.overwrite = true"});
}

/// The model folder is the reference's, and what is not trained of an export.
void require_same_models(const RunRank& rank, const CheckpointReader& checkpoint) {
  for (const ConfigChange& weights : changed_weights(checkpoint, rank)) {
    const std::string folder = weights.key == "model.path"
                                   ? rank.config().model.path
                                   : rank.own_weights.of(weights.key).at("weights").path;
    std::string change = fmt::format("digest of the weights {} -> {}", weights.before, weights.after);
    for (const ConfigChange& key : changes_since(checkpoint, rank.task, rank.inputs.digests))
      if (key.key == weights.key) change += fmt::format("; {} {} -> {}", key.key, key.before, key.after);
    const bool of_base = weights.key == "model.path" && rank.task.plan.adapters.on();
    if (!rank.config().checkpoint.accept_changes || of_base)
      refuse_weights(fmt::format("{} = {} (checkpoint {})", weights.key, folder, checkpoint.path()), change);
    if (rank.writes()) log::warn("changed since: {}", change);
    rank.files.write_event(
        "changed", {{"key", "digest of the weights"}, {"before", weights.before}, {"after", weights.after}});
  }
}

void restore(RunRank& rank) {
  const ResumePoint& resume = rank.files.resume;
  RunLinks& links = rank.links;
  links.groups.start(resume.step, resume.produced);
  links.weights.start(resume.step);
  if (resume.checkpoint.empty()) return;
  links.end.set_trained(resume.step);
  const CheckpointReader checkpoint(resume.checkpoint);
  require_same_models(rank, checkpoint);
  std::span<const std::unique_ptr<Role>> roles(rank.roles);
  Role* const rollout = rank.generates() ? roles.front().get() : nullptr;
  if (rollout) {
    rollout->restore(checkpoint);
    roles = roles.subspan(1);
  }
  if (rank.trains() || rank.placement.learns()) put_back_steps(checkpoint, rank.task.plan, links.groups);
  if (rank.trains()) publish_older_weights(rank, checkpoint, rollout);
  for (const std::unique_ptr<Role>& role : roles) role->restore(checkpoint);
  const bool over = resume.step >= rank.last_step() || rank.standings.reached();
  if (rank.trains())
    log::info("resumed from {}, step {}{}", checkpoint.path(), resume.step,
              over ? ": nothing is left to do" : "");
  rank.files.write_event("resume", {{"step", resume.step}, {"path", checkpoint.path()}});
  if (rank.writes()) tell_what_differs(rank.task, resume);
}

/// The rank that writes: what stays of an earlier start.
void prepare_files(RunRank& rank) {
  RunFolder& folder = *rank.files.folder;
  const bool writes_all = rank.task.plan.generates && rank.config().rollout.dump_every == 1;
  prepare_folder(folder, rank.files.found, rank.files.resume.step, rank.journal->said(), writes_all);
  if (rank.files.found == RunStart::Finds::own)
    remove_old_checkpoints(rank.files.checkpoints, keep_rules(rank.config(), rank.standings));
  folder.keep_config(dump_config(rank.task.loaded));
}

void start_tracker(RunRank& rank) {
  const Config& config = rank.config();
  const std::string folder = std::filesystem::absolute(rank.files.root).lexically_normal().string();
  const TrackerOptions options{config.log.command, config.log.command_seconds, config.run.name, folder,
                               config_json(config)};
  rank.journal->track(std::make_unique<Tracker>(*rank.task.helpers, options));
}

}  // namespace

void start_run(RunRank& rank) {
  enter_phase(Phase::load);
  rank.connect_weights();
  restore(rank);
  if (!rank.trains()) return;
  if (rank.files.folder) prepare_files(rank);
  rank.links.trainers->barrier("run folder prepared by the first trainer rank");
  export_what_is_owed(rank);
  if (rank.files.folder) rank.journal->open(*rank.files.folder, rank.inputs.prompt_frame(rank.config().data));
  if (rank.files.folder && !rank.config().log.command.empty() && !rank.task.rollouts_only)
    start_tracker(rank);
  const StartFacts facts{rank.files.resume.step + 1, rank.policy->parameters().num_parameters(),
                         rank.threads.why, rank.weights_digest()};
  log::info("{}", start_text(rank.task, rank.inputs, facts) + carriers_text(rank.links));
  rank.files.write_event("start", start_event(rank.task, rank.inputs, facts));
  tell_idle_keys(rank.task);
  const auto eos = rank.inputs.text.tokenizer ? rank.inputs.text.tokenizer->eos_id() : std::nullopt;
  if (const std::string lost = lost_end_tokens_text(rank.policy->config(), eos); !lost.empty())
    log::warn("{}", lost);
  if (const int64_t step = rank.files.resume.step; step < rank.last_step() && !rank.standings.reached())
    rank.links.weights.publish(rank.host->ctx(), rank.policy->parameters(), step);
}

}  // namespace temper
