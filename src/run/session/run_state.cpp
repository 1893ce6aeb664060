#include "src/run/session/run_state.h"

#include <spdlog/spdlog.h>

#include <cstring>

#include "src/rl/trajectory_bytes.h"

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

constexpr const char* kOtherCheckpoint =
    "use another checkpoint; `temper verify --checkpoint DIR` lists what is wrong";

constexpr const char* kUnfinished = "unfinished";

std::string ahead_name(int64_t step) { return "ahead/" + RunFolder::step_name(step); }

/// Groups as a tensor: the number of their bytes (8 bytes), then those, filled up with zeros to words.
Tensor to_words(Arena& arena, const std::string& bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  Tensor words = arena.make({2 + (size + 3) / 4}, DType::i32);
  std::memset(words.raw(), 0, static_cast<size_t>(words.size()) * 4);
  std::memcpy(words.raw(), &size, sizeof size);
  std::memcpy(words.as<int32_t>() + 2, bytes.data(), bytes.size());
  return words;
}

/// This rank's share of it.
StateTensor words_to_save(Arena& arena, const std::string& name, const std::string& bytes, const Comm& dp) {
  const Tensor words = to_words(arena, bytes);
  const FlatRange mine = shard_range(words.size(), dp.rank(), dp.size());
  return {
      name, {words.size()}, mine, make_tensor(words.as<int32_t>() + mine.begin, DType::i32, {mine.size()})};
}

[[noreturn]] void refuse_groups(const std::string& where, const std::string& why) {
  fail(Exit::data, {.what = "the groups of a checkpoint cannot be read",
                    .where = where,
                    .why = why,
                    .fix = kOtherCheckpoint});
}

/// What `read` makes of the bytes of such a tensor of a checkpoint.
template <class Read>
auto read_words(const Manifest& manifest, const std::string& checkpoint, const std::string& name, Read read) {
  const std::string where = checkpoint + ": " + name;
  const std::vector<int64_t>& shape = manifest.tensors().at(name).shape;
  if (shape.size() != 1 || shape[0] < 2)
    refuse_groups(where, fmt::format("{} dimensions; one, of at least 2 words, is wanted", shape.size()));
  Arena memory;
  const Tensor words = memory.make({shape[0]}, DType::i32);
  load_state(manifest, std::vector<StateTensor>{{name, shape, {0, shape[0]}, words}});
  int64_t size = 0;
  std::memcpy(&size, words.raw(), sizeof size);
  if (size < 0 || size > 4 * (words.size() - 2))
    refuse_groups(where, fmt::format("{} bytes in {} words", size, words.size()));
  try {
    return read(
        std::string_view(reinterpret_cast<const char*>(words.as<int32_t>() + 2), static_cast<size_t>(size)));
  } catch (const std::exception& e) {
    refuse_groups(where, e.what());
  }
}

}  // namespace

void save_run(const std::string& folder, int64_t step, const RunState& state, const Services& s) {
  const PhaseTimer timer(s.journal, "save_checkpoint");
  Json meta = {{"optimizer_updates", state.trainer->optimizer().count()},
               {"data_position", state.data_position},
               {"dtype", dtype_name(s.model.dtype())},
               {"model_path", s.config().model.path},
               {"config", dump_config(s.loaded)}};
  std::vector<StateTensor> tensors = state_tensors(*state.trainer);
  Arena memory;
  for (size_t i = 0; i < state.ahead.size(); ++i)
    tensors.push_back(words_to_save(memory, ahead_name(step + 1 + static_cast<int64_t>(i)),
                                    step_input_to_bytes(*state.ahead[i]), *s.dp));
  if (!state.unfinished->empty())
    tensors.push_back(words_to_save(memory, kUnfinished, groups_to_bytes(*state.unfinished), *s.dp));
  save_checkpoint(folder, step, tensors, meta, *s.dp);
  if (s.dp->rank() == 0) remove_old_checkpoints(folder, s.config().checkpoint.keep);
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

ResumePoint read_resume_point(const std::string& checkpoint) {
  const Manifest manifest = Manifest::read(checkpoint);
  ResumePoint point{manifest.step(), manifest.step(), manifest.meta_count("data_position")};
  while (manifest.tensors().contains(ahead_name(point.produced + 1))) ++point.produced;
  return point;
}

std::map<int64_t, StepInput> restore_run(const std::string& checkpoint, Trainer& trainer, const Services& s) {
  const Manifest manifest = Manifest::read(checkpoint);
  const std::string dtype = manifest.meta_text("dtype");
  if (dtype != dtype_name(s.model.dtype()))
    fail(Exit::usage, {.what = "the checkpoint was made with another dtype",
                       .where = checkpoint,
                       .why = fmt::format("it has {}, the run {}", dtype, dtype_name(s.model.dtype())),
                       .fix = "set run.dtype = \"" + dtype + "\""});
  load_state(manifest, state_tensors(trainer));
  trainer.optimizer().restore(s.ctx, manifest.meta_count("optimizer_updates"));
  std::map<int64_t, StepInput> ahead;
  for (int64_t step = manifest.step() + 1; manifest.tensors().contains(ahead_name(step)); ++step) {
    ahead[step] = read_words(manifest, checkpoint, ahead_name(step), step_input_from_bytes);
  }
  return ahead;
}

std::vector<Group> read_unfinished(const std::string& checkpoint) {
  const Manifest manifest = Manifest::read(checkpoint);
  if (!manifest.tensors().contains(kUnfinished)) return {};
  return read_words(manifest, checkpoint, kUnfinished, groups_from_bytes);
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
