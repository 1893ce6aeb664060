#include "src/run/run_state.h"

#include <spdlog/spdlog.h>

namespace temper {
namespace {

std::vector<StateTensor> state_tensors(Trainer& trainer) {
  std::vector<StateTensor> list;
  for (const OptimizerPiece& p : trainer.optimizer().pieces()) {
    const ParamSpec& spec = p.parameter->spec;
    list.push_back({"param/" + spec.name, spec.shape, p.range, p.master});
    list.push_back({"opt/m/" + spec.name, spec.shape, p.range, p.m});
    list.push_back({"opt/v/" + spec.name, spec.shape, p.range, p.v});
  }
  return list;
}

}  // namespace

void save_run(const std::string& folder, int64_t step, const RunState& state, const Services& s) {
  const PhaseTimer timer(s.journal, "save_checkpoint");
  Json meta = {{"optimizer_updates", state.trainer->optimizer().count()},
               {"data_position", state.prompts ? state.prompts->position() : 0},
               {"dtype", dtype_name(s.model.dtype())},
               {"model_path", s.config().model.path},
               {"config", dump_config(s.loaded)}};
  save_checkpoint(folder, step, state_tensors(*state.trainer), meta, s.comm);
  if (s.comm.rank() == 0) remove_old_checkpoints(folder, s.config().checkpoint.keep);
}

std::string find_checkpoint(const std::string& folder, Comm& comm) {
  std::string found;
  if (comm.rank() == 0) {
    std::vector<int64_t> steps = list_checkpoints(folder);
    for (size_t i = steps.size(); i-- > 0 && found.empty();) {
      const std::string path = join_path(folder, RunFolder::step_name(steps[i]));
      std::string defect;
      try {
        const std::vector<Damage> damage = verify_checkpoint(path);
        if (damage.empty())
          found = path;
        else
          defect = fmt::format("{}: {}", damage.front().file, damage.front().reason);
      } catch (const Error& e) {  // a manifest that cannot be used; storage that fails now may work later
        if (e.code() == Exit::storage) throw;
        defect = e.problem().why;
      }
      if (!defect.empty()) spdlog::warn("checkpoint {} is passed over: {}", path, defect);
    }
    if (found.empty() && !steps.empty())  // a new start would remove them
      fail(Exit::data, {.what = "no checkpoint of this run can be used",
                        .where = folder,
                        .why = fmt::format("{} found, none is sound; the log says why", steps.size()),
                        .fix = "choose another run.name, or start anew with checkpoint.resume = \"none\" and "
                               "run.overwrite = true"});
  }
  return comm.broadcast(found, 0, "checkpoint to resume from");
}

std::string sound_checkpoint(const std::string& path, Comm& comm) {
  const std::string checkpoint = resolve_checkpoint(path);
  if (comm.rank() == 0) require_sound(checkpoint);
  comm.barrier("checkpoint verified by rank 0");
  return checkpoint;
}

int64_t restore_run(const std::string& checkpoint, const RunState& state, const Services& s) {
  const Manifest manifest = Manifest::read(checkpoint);
  const std::string dtype = manifest.meta_text("dtype");
  if (dtype != dtype_name(s.model.dtype()))
    fail(Exit::usage, {.what = "the checkpoint was made with another dtype",
                       .where = checkpoint,
                       .why = fmt::format("it has {}, the run {}", dtype, dtype_name(s.model.dtype())),
                       .fix = "set run.dtype = \"" + dtype + "\""});
  const std::vector<StateTensor> tensors = state_tensors(*state.trainer);
  load_state(manifest, tensors);
  state.trainer->optimizer().restore(s.ctx, s.comm, manifest.meta_count("optimizer_updates"));
  if (state.prompts) state.prompts->set_position(manifest.meta_count("data_position"));
  return manifest.step();
}

std::string resolve_checkpoint(const std::string& path) {
  if (path_exists(join_path(path, "manifest.json"))) return path;
  const std::string folder = join_path(path, "checkpoints");
  const std::vector<int64_t> steps = list_checkpoints(is_directory(folder) ? folder : path);
  if (steps.empty())
    fail(Exit::usage, {.what = "no checkpoint here",
                       .where = path,
                       .why = path_exists(path) ? "it holds no step-NNNNNN with a manifest.json"
                                                : "the path does not exist",
                       .fix = "name a step folder or a run folder"});
  return join_path(is_directory(folder) ? folder : path, RunFolder::step_name(steps.back()));
}

}  // namespace temper
