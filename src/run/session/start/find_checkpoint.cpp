#include "src/run/session/start/find_checkpoint.h"

#include <filesystem>

#include "src/core/file.h"
#include "src/core/log.h"
#include "src/core/reachable.h"
#include "src/io/checkpoint/checkpoint.h"
#include "src/io/hf/peft_folder.h"
#include "src/run/record/run_checkpoint.h"
#include "src/run/record/run_folder.h"

namespace temper {
namespace {

/// Empty: it is sound.
std::string defect_of(const std::string& checkpoint) {
  try {
    const std::vector<Damage> damage = verify_checkpoint(checkpoint, Numbers::finite);
    return damage.empty() ? "" : fmt::format("{}: {}", damage.front().file, damage.front().reason);
  } catch (const Error& e) {  // a manifest that cannot be used; storage that fails now may work later
    if (e.code() == Exit::storage) throw;
    return e.problem().why;
  }
}

/// Step folder or run folder: the same checkpoint.
bool names(const std::string& path, const std::string& checkpoint) {
  std::error_code missing;
  return !path.empty() && path_exists(path) &&
         std::filesystem::equivalent(resolve_checkpoint(path), checkpoint, missing);
}

}  // namespace

std::string newest_sound_checkpoint(const std::string& folder, const std::string& named) {
  const std::vector<int64_t> steps = list_checkpoints(folder);
  for (size_t i = steps.size(); i-- > 0;) {
    const std::string path = join_path(folder, step_name(steps[i]));
    const std::string defect = defect_of(path);
    if (defect.empty()) return path;
    if (names(named, path)) require_sound(path, Numbers::finite);
    log::warn("checkpoint {} is passed over: {}", path, defect);
  }
  return "";
}

std::string shared_checkpoint(const std::string& path, Comm& comm) {
  return comm.broadcast(comm.rank() == 0 ? resolve_checkpoint(path) : "", 0,
                        "checkpoint, as rank 0 found it");
}

TokenizerPlace tokenizer_place(const Manifest& manifest) {
  const auto path = [&](const char* key) { return manifest.has_meta(key) ? manifest.meta_text(key) : ""; };
  return {path(kTokenizerPath), path(kTemplatePath)};
}

AdapterConfig adapters_of(const Manifest& manifest) {
  if (!manifest.has_meta(kAdapters)) return {};
  const std::string where = fmt::format("{}: meta.{}", manifest.path(), kAdapters);
  return parse_adapter_config(parse_json(manifest.meta_text(kAdapters), where, kConfigLimits), where,
                              {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
}

ModelSource checkpoint_source(const std::string& checkpoint, const std::string& folder) {
  ModelSource source{.folder = folder, .checkpoint = checkpoint};
  const Manifest manifest = Manifest::read(checkpoint);
  source.adapters = adapters_of(manifest);
  if (source.adapters.on() && manifest.has_meta("model_digest")) {
    source.digest = manifest.meta_text("model_digest");
    source.digest_from = checkpoint;
  }
  if (!folder.empty()) return source;
  source.folder = manifest.meta_text("model_path");
  if (!is_directory(source.folder))
    fail(Exit::usage, {.what = "the model folder of this checkpoint is not here",
                       .where = checkpoint,
                       .why = fmt::format("its run began with {}, which does not exist", source.folder),
                       .fix = "name a folder that has its config.json and tokenizer: --model DIR"});
  source.tokenizer = tokenizer_place(manifest);
  return source;
}

std::string resolve_checkpoint(const std::string& path) {
  require_reachable(join_path(path, "manifest.json"));
  if (path_exists(join_path(path, "manifest.json"))) return path;
  const std::string folder = join_path(path, "checkpoints");
  const std::vector<int64_t> steps = list_checkpoints(is_directory(folder) ? folder : path);
  if (steps.empty() && !path_exists(path))
    fail(Exit::usage, {.what = "no checkpoint here",
                       .where = path,
                       .why = "the path does not exist",
                       .fix = "name a step folder or a run folder"});
  if (path_exists(join_path(path, "rank-0000.h5"))) return path;  // a step folder, as its reader says
  if (steps.empty())
    fail(Exit::data,
         {.what = "no checkpoint here",
          .where = path,
          .why = "it holds neither a manifest.json nor checkpoints/step-NNNNNN",
          .fix = "name a step folder or a run folder; a run saves at its end, when it is stopped, "
                 "and every checkpoint.every steps"});
  return join_path(is_directory(folder) ? folder : path, step_name(steps.back()));
}

}  // namespace temper
