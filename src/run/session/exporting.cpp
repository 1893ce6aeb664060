#include "src/run/session/exporting.h"

#include <filesystem>

#include "src/core/log.h"
#include "src/core/process/progress.h"
#include "src/io/hf/peft_folder.h"
#include "src/models/parameter_specs.h"
#include "src/run/exchange/shared_weights.h"

namespace temper {
namespace {

std::string export_folder(const RunFiles& files, int64_t step) {
  return files.folder->path("export/" + step_name(step));
}

/// So that it leads there from wherever the folder is used.
std::string absolute_path(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

/// On the rank that writes. `read`: all elements of the weights, wherever they are.
void write_export(const RunRank& rank, int64_t step, const ElementReader& read) {
  const std::string out = export_folder(rank.files, step);
  if (path_exists(out)) remove_tree(out);
  make_directories(rank.files.folder->path("export"));
  const TokenizerConfig& t = rank.config().tokenizer;
  const ModelConfig& model = rank.policy->config();
  if (model.adapters.on())
    export_adapters(parameter_specs(model), read, out,
                    {model.adapters, absolute_path(rank.config().model.path), rank.policy->dtype()});
  else
    export_model(rank.config().model.path, parameter_specs(model), read, out,
                 {.allow_unused = rank.config().model.allow_unused,
                  .tokenizer = {t.path.value_or(""), t.chat_template.value_or("")}});
  tell_what_changed(rank.inputs.digests, rank.config().model.path);
  log::info("exported {}", out);
  rank.files.write_event("export", {{"step", step}, {"path", out}});
}

}  // namespace

bool export_is_due(const RunTask& task, int64_t step, bool ends) {
  const int64_t every = task.config().checkpoint.export_hf_every;
  return every > 0 && !task.rollouts_only && (step % every == 0 || step == task.last_step() || ends);
}

void remove_export(const RunRank& rank, int64_t step) {
  if (!rank.writes() || export_is_due(rank.task, step, /*ends=*/false)) return;
  const std::string folder = export_folder(rank.files, step);
  if (path_exists(folder)) remove_tree(folder);
}

void export_step(RunRank& rank, int64_t step) {
  enter_phase(Phase::exported, step);
  const PhaseTimer timer(*rank.journal, "export_hf");
  const ParameterStore& weights = rank.policy->parameters();
  const auto write = [&](const ElementReader& read) { write_export(rank, step, read); };
  const Mesh& trainer = rank.links.meshes.trainer();
  const RolePlan& role = rank.task.plan.trainer();
  Comm& model = trainer.control(role.one_model());
  const bool shared = model.size() > 1;
  if (rank.writes() && !shared) write(store_reader(weights));
  if (shared && role.is_of_first_model(rank.links.trainers->rank()))
    read_shared(
        {model, role.holders_of_one()}, weights, [](const Parameter& p) { return p.value; }, write);
  rank.links.trainers->barrier("export written by the first trainer rank");
}

void export_what_is_owed(RunRank& rank) {
  const int64_t step = rank.files.resume.step;
  const bool due = export_is_due(rank.task, step, rank.standings.reached()) || rank.standings.is_best(step);
  if (step == 0 || !due) return;
  const bool owed = rank.writes() && !path_exists(export_folder(rank.files, step));
  if (rank.links.trainers->all_reduce_max(owed ? 1.0 : 0.0, "export that is owed, max over trainer ranks") >
      0)
    export_step(rank, step);
}

}  // namespace temper
